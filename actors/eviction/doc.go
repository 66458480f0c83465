// Package eviction is the actor that measures memory, disks and process numbers, reports pressure to registration and pods, and
// acts on it: what nobody uses is removed, then pods are evicted, one at a time. Limits of local storage are held, too. Processes
// that the kernel ends for want of memory are told of (oom.go).
//
// How to read the folder: measure.go and disk.go measure, and layout.go tells which file systems are one; pressure.go has
// thresholds and their hysteresis, decide.go what is to be done, rank.go which pod comes first and what its status says, local.go
// the limits of a pod's own; all but the first are pure. actor.go measures, act.go, leave.go and reclaim.go carry it out.
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
//
//	             measure: 10 s            is a pod above a limit of its own? ──EvictPod──▶ pods
//	eviction ──▶ thresholds, grace ──met──▶ a disk: dead containers ──ReclaimContainers──▶ runtime
//	                  ▲                              then images ──ReclaimImages──▶ images
//	                  │                     measured again and still met, or memory, or process IDs:
//	                  └── the pod has left ◀── the pod that comes first ──EvictPod──▶ pods ──▶ pods/<uid>
//
// pressure.go (thresholds, hysteresis), decide.go, rank.go and local.go are pure. pods keeps the failure on the disk before the
// pod's actor learns of it, as with preemption, and publishes it on the board: an actor or an agent that begins while a pod is
// being evicted awaits that pod before it evicts another. Pods of which there are no figures are not evicted, nor is any while
// the node's pods are not all read after a start (a minute at most); for a disk, none while volumes and logs of some are not
// walked (three measurements at most).
//
// Memory is watched between measurements (watch.go, actors/eviction/memwatch): by thresholds of the kernel on cgroup v1,
// as long as the page cache leaves room for one below the limit; otherwise, and on v2 beside triggers of PSI, by looks at memory
// alone, of which the next comes before 4 GiB/s could use up what is left. Disks and tasks are looked at in the same way, each
// by itself, once a second at most and every 10 s while much is left. task bench-idle prints what that costs.
//
// While a pod leaves with the grace period of a soft threshold, a hard one that is met gives it a second by another EvictPod.
// What is taken back has two minutes a service, prolonged while more and more is left of what is short; a service that begins
// anew is asked again.
//
// Processes that the kernel ends for want of memory are read from its log (actors/eviction/oomkill), on cgroups of either
// version: the pod's or the node's Events name each at once, whether its container ends with it or not. Where the log cannot be
// read, that is logged, and the kernel's count of them is looked at every two seconds, one number for the machine; when it has
// changed, the counters of the pods' cgroups say in which containers they were, and by which limit, without names.
package eviction
