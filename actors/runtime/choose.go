package runtime

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/cri/facts"
	"github.com/playlet-dev/playlet/messages"
)

// Policy limits the dead containers to keep. The corresponding kubelet flags are in parentheses.
type Policy struct {
	// MinAge is the least time since its creation before a container is removed (--minimum-container-ttl-duration).
	MinAge time.Duration
	// MaxPerContainer is the number of dead instances to keep per container of a pod (--maximum-dead-containers-per-container);
	// negative: all. With 0, the newest instance stays until the pod's final status is on disk.
	MaxPerContainer int
	// MaxTotal is the number of dead containers to keep on the node (--maximum-dead-containers); negative: all. Where
	// MaxPerContainer keeps any, the newest instance of each container stays regardless, because it records how the container
	// ended.
	MaxTotal int
}

// DefaultPolicy returns the kubelet's policy: keep the newest dead instance of each container.
func DefaultPolicy() Policy { return Policy{MinAge: 0, MaxPerContainer: 1, MaxTotal: -1} }

// desiredPods is the set of desired pods, as last sent by the actor pods.
type desiredPods struct {
	uids     map[string]bool
	complete bool
	// finished has the pods of KeepContainers.Over. The ends of the containers of all others are recorded only in the runtime.
	finished map[string]bool
	reclaim  bool // the node is short of disk: all dead containers of pods that are over are removed
}

// undesired reports whether the pod is not desired. That is certain only after every source was read.
func (w desiredPods) undesired(uid string) bool { return w.complete && !w.uids[uid] }

// spared reports whether the pod must not be touched, because a source that was not read yet may desire it.
func (w desiredPods) spared(uid string) bool { return !w.complete && !w.uids[uid] }

// removal lists the objects to remove of one pod, in this order.
type removal struct {
	uid        string
	podGone    bool
	containers []deadContainer // oldest first
	sandboxes  []string
	logs       []string // names of log folders
}

// deadContainer is a container to remove. log is relative to the folder of all logs; empty: the log stays.
type deadContainer struct{ id, sandbox, log string }

// existingState is the existing state: the CRI's lists, and the names of the pods' log folders.
type existingState struct {
	facts.Listing
	logs []string
}

// choose returns the removals. It is pure. A pod that is gone loses all dead objects; another loses dead instances beyond the
// limits and empty sandboxes other than the newest. Running or starting objects, and objects without a pod's labels, are never
// chosen.
func choose(p Policy, now time.Time, h existingState, w desiredPods) []removal {
	byPod := h.ByPod()
	out := map[string]*removal{}
	of := func(uid string) *removal {
		if out[uid] == nil {
			out[uid] = &removal{uid: uid, podGone: w.undesired(uid)}
		}
		return out[uid]
	}
	toRemove := chooseContainers(p, now, byPod, w)
	for uid, l := range byPod {
		if w.spared(uid) {
			continue
		}
		var left []string // sandboxes of the remaining containers
		for _, c := range l.Containers {
			if toRemove[c.GetId()] {
				r := of(uid)
				r.containers = append(r.containers, deadContainer{c.GetId(), c.GetPodSandboxId(),
					logOf(c, l.Containers, toRemove)})
				continue
			}
			left = append(left, c.GetPodSandboxId())
		}
		if s := chooseSandboxes(l.Sandboxes, left, w.undesired(uid)); len(s) > 0 {
			of(uid).sandboxes = s
		}
	}
	for _, name := range h.logs {
		uid, ok := logFolderUID(name)
		if !ok || !w.undesired(uid) {
			continue
		}
		l, r := byPod[uid], cmp.Or(out[uid], &removal{})
		if len(r.sandboxes) < len(l.Sandboxes) || len(r.containers) < len(l.Containers) {
			continue // part of the pod is alive, so its logs stay
		}
		of(uid).logs = append(of(uid).logs, name)
	}
	return sorted(out, h)
}

// unit is one container of one pod; it can have many instances.
type unit struct{ uid, name string }

// chooseContainers returns the IDs of the containers to remove.
func chooseContainers(p Policy, now time.Time, byPod map[string]facts.Listing, w desiredPods) map[string]bool {
	toRemove := map[string]bool{}
	kept := map[unit][]*runtimeapi.Container{} // newest first, without those younger than MinAge
	for uid, l := range byPod {
		if w.spared(uid) {
			continue
		}
		for name, instances := range instancesOf(l) {
			var dead []*runtimeapi.Container
			for i, c := range instances {
				switch {
				case !removable(c, i == 0 && !w.undesired(uid)) || tooYoung(c, now, p.MinAge):
				case i == 0 && p.MaxPerContainer == 0 && !w.undesired(uid) && !w.finished[uid]: // the only record of its end
				case w.undesired(uid) || w.reclaim && w.finished[uid]:
					toRemove[c.GetId()] = true
				default:
					dead = append(dead, c)
				}
			}
			if len(dead) > 0 {
				kept[unit{uid, name}] = dead
			}
		}
	}
	if p.MaxPerContainer >= 0 {
		trim(kept, p.MaxPerContainer, toRemove)
	}
	chooseForTotal(p, kept, toRemove)
	return toRemove
}

// tooYoung reports whether a container was created less than least ago. One that was created after now, before the clock was set
// back, is not.
func tooYoung(c *runtimeapi.Container, now time.Time, least time.Duration) bool {
	age := now.Sub(time.Unix(0, c.GetCreatedAt()))
	return age >= 0 && age < least
}

// chooseForTotal enforces MaxTotal: it cuts all units to an equal share, then removes the oldest containers.
func chooseForTotal(p Policy, kept map[unit][]*runtimeapi.Container, toRemove map[string]bool) {
	if p.MaxTotal < 0 || len(kept) == 0 || count(kept) <= p.MaxTotal {
		return
	}
	trim(kept, max(p.MaxTotal/len(kept), 1), toRemove)
	least := 1 // of each unit
	if p.MaxPerContainer == 0 {
		least = 0
	}
	var rest []*runtimeapi.Container
	for _, dead := range kept {
		rest = append(rest, dead[min(least, len(dead)):]...)
	}
	slices.SortFunc(rest, func(a, b *runtimeapi.Container) int {
		return cmp.Or(cmp.Compare(a.GetCreatedAt(), b.GetCreatedAt()), strings.Compare(a.GetId(), b.GetId()))
	})
	for _, c := range rest[:min(len(rest), max(count(kept)-p.MaxTotal, 0))] {
		toRemove[c.GetId()] = true
	}
}

// trim keeps the newest n of each unit and marks the others for removal.
func trim(kept map[unit][]*runtimeapi.Container, n int, toRemove map[string]bool) {
	for u, dead := range kept {
		for _, c := range dead[min(n, len(dead)):] {
			toRemove[c.GetId()] = true
		}
		kept[u] = dead[:min(n, len(dead))]
	}
}

func count(kept map[unit][]*runtimeapi.Container) int {
	n := 0
	for _, dead := range kept {
		n += len(dead)
	}
	return n
}

// instancesOf returns the pod's containers by name, newest first. It sorts by attempt, which is immune to clock changes.
func instancesOf(l facts.Listing) map[string][]*runtimeapi.Container {
	out := map[string][]*runtimeapi.Container{}
	for _, c := range l.Containers {
		if name := c.GetLabels()[cri.LabelContainerName]; name != "" && c.GetMetadata() != nil {
			out[name] = append(out[name], c)
		}
	}
	for _, instances := range out {
		slices.SortFunc(instances, func(a, b *runtimeapi.Container) int {
			return cmp.Or(cmp.Compare(b.GetMetadata().GetAttempt(), a.GetMetadata().GetAttempt()),
				cmp.Compare(b.GetCreatedAt(), a.GetCreatedAt()), strings.Compare(b.GetId(), a.GetId()))
		})
	}
	return out
}

// removable reports whether the container's state permits its removal. The current instance may be about to start or stop while
// it is created or in an unknown state.
func removable(c *runtimeapi.Container, current bool) bool {
	switch c.GetState() {
	case runtimeapi.ContainerState_CONTAINER_EXITED:
		return true
	case runtimeapi.ContainerState_CONTAINER_CREATED, runtimeapi.ContainerState_CONTAINER_UNKNOWN:
		return !current
	}
	return false
}

// chooseSandboxes returns the IDs of the sandboxes to remove: not ready, without containers, and not the newest unless the pod
// is gone.
func chooseSandboxes(sandboxes []*runtimeapi.PodSandbox, inUse []string, gone bool) []string {
	byAge := slices.Clone(sandboxes)
	slices.SortFunc(byAge, func(a, b *runtimeapi.PodSandbox) int {
		return cmp.Or(cmp.Compare(b.GetMetadata().GetAttempt(), a.GetMetadata().GetAttempt()),
			cmp.Compare(b.GetCreatedAt(), a.GetCreatedAt()), strings.Compare(b.GetId(), a.GetId()))
	})
	var out []string
	for i, s := range byAge {
		ready := s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY
		if !ready && (i > 0 || gone) && !slices.Contains(inUse, s.GetId()) {
			out = append(out, s.GetId())
		}
	}
	return out
}

// logFolderUID returns the UID in the name of a pod's log folder, "<namespace>_<name>_<uid>". Other names are not of pods.
func logFolderUID(name string) (string, bool) {
	parts := strings.Split(name, "_")
	if len(parts) != 3 || slices.Contains(parts, "") || messages.CheckUID(parts[2]) != nil {
		return "", false
	}
	return parts[2], true
}

func sorted(out map[string]*removal, h existingState) []removal {
	created := map[string]int64{}
	for _, c := range h.Containers {
		created[c.GetId()] = c.GetCreatedAt()
	}
	var all []removal
	for _, uid := range slices.Sorted(maps.Keys(out)) {
		r := *out[uid]
		slices.SortFunc(r.containers, func(a, b deadContainer) int {
			return cmp.Or(cmp.Compare(created[a.id], created[b.id]), strings.Compare(a.id, b.id))
		})
		slices.Sort(r.sandboxes)
		slices.Sort(r.logs)
		all = append(all, r)
	}
	return all
}
