// Package eviction is the actor that measures memory, disks and process numbers, reports pressure to registration and pods, and
// acts on it: what nobody uses is removed, then pods are evicted, one at a time. Limits of local storage are held, too. Processes
// that the kernel ends for want of memory are told of (oom.go).
//
// How to read the folder: measure.go measures and layout.go tells which file systems are one; pressure.go has thresholds and
// their hysteresis, decide.go what is to be done, rank.go which pod comes first and what its status says, local.go the limits of
// a pod's own; all but the first are pure. actor.go measures, act.go and reclaim.go carry it out.
//
// Signals, thresholds, ranking and messages are the kubelet's, as documented for node-pressure eviction. What differs: a pod of
// which there are no figures is not evicted, since its end may bring nothing; figures of volumes are measured anew before a disk
// decides over pods; a pod that leaves is awaited until its volumes have gone; containerfs.* is measured only where containers
// have a file system of their own, and has the thresholds of imagefs.* where none are set; static pods are evicted only if
// --evict-static-pods says so.
//
// Other actors: runtime and images remove what nobody uses (ReclaimContainers, ReclaimImages), pods ends a pod (EvictPod). A lost
// answer costs a wait of two minutes without progress; a lost EvictPod one of half a minute, or until pods that began anew knows
// all pods and not of the eviction; then it is measured and ranked again.
package eviction
