package stats

import (
	"slices"
	"time"

	"github.com/google/cadvisor/lib/model"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/internal/podspec"
	"github.com/playlet-dev/playlet/actors/stats/cgroupstats"
)

// figures are the collected figures for one answer. Immutable.
type figures struct {
	at      time.Time
	node    *cgroupstats.Cgroup
	cgroups cgroupstats.Set
	system  map[string]string
	pods    []podFigures // with a running container
	idle    []podFigures // not over, and without a running container: in back-off, initializing or waiting
	disk    space
	images  imageSpace
	mounted []model.FsStats
	lacks   []string // sentences about missing figures
}

// podFigures are the figures of a pod.
type podFigures struct {
	*board.Pod
	own        *cgroupstats.Cgroup // nil if it is not visible
	sandbox    *cgroupstats.Cgroup
	containers []containerFigures
	usage      *podUsage // nil: not measured yet
}

// containerFigures are the figures of a running container.
type containerFigures struct {
	status   *v1.ContainerStatus
	started  time.Time
	cgroup   *cgroupstats.Cgroup // made of the CRI's figures if no cgroup is visible; nil without either
	writable *runtimeapi.FilesystemUsage
}

// blind reports whether a container has no figures.
func (f *figures) blind() bool {
	return slices.ContainsFunc(f.pods, func(p podFigures) bool {
		return slices.ContainsFunc(p.containers, func(c containerFigures) bool { return c.cgroup == nil })
	})
}

// join assembles the figures of each pod that is not over.
func (f *figures) join(snapshot *board.Snapshot, runtime runtimeFigures) {
	f.node, f.pods, f.idle = f.cgroups["/"], nil, nil
	own, inside := map[string]*cgroupstats.Cgroup{}, map[string]*cgroupstats.Cgroup{}
	sandboxes := map[string]*cgroupstats.Cgroup{}
	for _, c := range f.cgroups {
		switch {
		case c.Pod != "" && c.ID == "":
			own[c.Pod] = c
		case c.Sandbox:
			sandboxes[c.Pod] = c
		case c.ID != "":
			inside[c.ID] = c
		}
	}
	for i := range snapshot.Pods {
		p := podFigures{Pod: &snapshot.Pods[i]}
		uid := string(p.Pod.Pod.UID)
		p.own, p.sandbox = own[uid], sandboxes[uid]
		for status := range podspec.Statuses(p.Status) {
			if status.State.Running == nil {
				continue
			}
			id := bareID(status.ContainerID)
			c := containerFigures{status: status, started: status.State.Running.StartedAt.Time, cgroup: inside[id]}
			if s := runtime[id]; s != nil {
				c.writable = s.GetWritableLayer()
				if c.cgroup == nil {
					c.cgroup = ofCRI(s, uid, id)
				}
			}
			p.containers = append(p.containers, c)
		}
		switch {
		case len(p.containers) > 0:
			f.pods = append(f.pods, p)
		case p.Status != nil && (p.Status.Phase == v1.PodRunning || p.Status.Phase == v1.PodPending):
			f.idle = append(f.idle, p)
		}
	}
}
