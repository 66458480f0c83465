// Package crilog knows the log files that a container runtime writes: how their lines read, how those that were rotated
// away are named, and how to read them all as one.
package crilog
