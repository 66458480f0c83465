// Package resources is the actor that makes the control groups of pods, with the kubelet's names and values, before anything
// of a pod is started, and removes them after its last process.
//
// How to read the folder: book.go decides for the node and entry.go for one pod (both pure), actor.go carries it out, work.go
// works outside the mailbox. Names and values are of actors/internal/cgroups.
//
// Nothing is remembered across a restart: pods that wait ask again, and what is there already is given its values again, which
// changes nothing. What is left behind is found on the disk.
package resources
