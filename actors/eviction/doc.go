// Package eviction is the actor that measures memory, disks and process numbers, reports pressure to registration and pods, and
// acts on it. It removes unused objects first, then evicts pods, one at a time. It also enforces limits of local storage, and
// reports out-of-memory kills by the kernel (oom.go).
//
// How to read the folder: measure.go and disk.go measure, and layout.go distinguishes the file systems. pressure.go has
// thresholds and their hysteresis, decide.go the next action, rank.go the order of pods and the status of an evicted one,
// local.go a pod's own limits. All but the first are pure. actor.go measures; act.go, leave.go and reclaim.go carry out the
// action.
//
// Signals, thresholds, ranking and messages are the kubelet's, as documented for node-pressure eviction. The differences: a pod
// without figures is not evicted, since its end may bring nothing. One in back-off has the figures of its data, although none of
// its containers runs. Figures of volumes are measured again before an eviction for a disk. A leaving pod is awaited until its
// volumes are gone. containerfs.* is measured only if containers have a file system of their own, and defaults to the thresholds
// of imagefs.*. Logs on a file system of their own, which no signal measures, do not count for nodefs. Static pods are evicted
// only with --evict-static-pods.
//
// Other actors: runtime and images remove unused objects (ReclaimContainers, ReclaimImages), pods ends a pod (EvictPod). A lost
// answer costs a wait of two minutes without progress. A lost EvictPod costs half a minute, or lasts until a restarted pods
// actor knows all pods but not the eviction; then measuring and ranking are repeated.
//
//	             measure: 10 s            is a pod above a limit of its own? ──EvictPod──▶ pods
//	eviction ──▶ thresholds, grace ──met──▶ a disk: dead containers ──ReclaimContainers──▶ runtime
//	                  ▲                              then images ──ReclaimImages──▶ images
//	                  │                     measured again and still met, or memory, or process IDs:
//	                  └── the pod has left ◀── the pod that comes first ──EvictPod──▶ pods ──▶ pods/<uid>
//
// pressure.go (thresholds, hysteresis), decide.go, rank.go and local.go are pure. pods saves the failure to disk before the
// pod's actor receives it, as with preemption, and publishes it on the board. An actor or agent that starts during an eviction
// therefore awaits that pod before it evicts another. Pods without figures are not evicted. After a start, no pod is evicted
// until all the node's pods are read (a minute at most). For a disk, none is evicted until all volumes and logs are walked
// (three measurements at most).
//
// Memory is watched between measurements (watch.go, actors/eviction/memwatch). On cgroup v1, thresholds of the kernel are used
// as long as the page cache leaves room for one below the limit. Otherwise, and on v2 beside triggers of PSI, memory alone is
// checked, each time before 4 GiB/s could use up the rest. Disks and tasks are checked in the same way, each by itself, once a
// second at most and every 10 s while much is left. task bench-idle prints the cost.
//
// While a pod leaves with the grace period of a soft threshold, a hard one reduces it to a second by another EvictPod. A reclaim
// has two minutes per service, prolonged while more and more is left of the short resource; a restarted service is asked again.
//
// Out-of-memory kills are read from the kernel's log (actors/eviction/oomkill), on cgroups of either version. The pod's or the
// node's Events name each process at once, whether or not its container ends. A log that cannot be read is logged, and the
// kernel's count of kills, one number for the machine, is read every two seconds. After a change, the counters of the pods'
// cgroups identify the containers and the limit, without names.
package eviction
