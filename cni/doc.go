// Package cni looks at the network configuration of pods as the container runtime does: what is configured, whether its
// plugins are there and say that they can work (CNI 1.1, STATUS), and, where that is asked for, what a pod would be given,
// tried in a network namespace made for it. The runtime alone attaches pods; nothing here touches one that a runtime knows.
// What others have left is given back (Attachments).
package cni
