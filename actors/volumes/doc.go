// Package volumes is the actor behind which every kind of volume is built: it holds what is wanted against what is
// found, and lets the plugin of each kind do the work.
//
// How to read the folder: machine.go decides (pure), pod.go is one pod's part of that, actor.go carries it out,
// disk.go does the work outside the mailbox, layout.go knows the folders, orphans.go sweeps what is left behind. A kind
// of volume is one file (emptydir.go, hostpath.go) and one line of the list in plugin.go.
//
// Nothing is remembered across a restart: an actor that starts knows no pod, and answers the pods that ask again by
// doing all of it again, which changes nothing where it was done. Work in flight is joined by its key.
package volumes
