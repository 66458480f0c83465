// Package cni checks the network configuration of pods from the container runtime's point of view. It reads the
// configuration, finds the plugins and asks for their status (CNI 1.1, STATUS). A trial attaches a network namespace made for
// it, and reports the result. The runtime alone attaches pods; this package changes no pod that a runtime knows. Attachments
// that were left behind are released (Attachments).
package cni
