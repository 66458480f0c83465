package cadvisor

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/cadvisor/lib/model"

	"github.com/playlet-dev/playlet/cri"
)

// Figures provides the figures. Its results are shared and must not be changed. It is safe for concurrent use.
type Figures interface {
	// Containers returns all cgroups, by name, each with one sample that is at most age old. lacks describes missing figures in
	// sentences.
	Containers(ctx context.Context, age time.Duration) (all map[string]*model.ContainerInfo, lacks []string)
	Machine(ctx context.Context) (*model.MachineInfo, error)
}

const (
	// keep is how long samples are kept: as long as cAdvisor does by default, and after the last reading.
	keep = 2 * time.Minute
	// maxSamples limits the samples of all cgroups together, a few kilobytes each. At least two of each are kept, as a rate needs
	// two.
	maxSamples = 4096
)

// history holds recent samples by the name of the cgroup, the oldest first. Safe for concurrent use.
type history struct {
	mu      sync.Mutex
	samples map[string][]*model.ContainerStats
	forget  *time.Timer
}

// add records new samples, and returns each cgroup with its recorded samples.
func (h *history) add(all map[string]*model.ContainerInfo) map[string]*model.ContainerInfo {
	h.mu.Lock()
	defer h.mu.Unlock()
	most := max(2, maxSamples/max(1, len(all)))
	now := make(map[string][]*model.ContainerStats, len(all))
	out := make(map[string]*model.ContainerInfo, len(all))
	for name, info := range all {
		list := slices.Clone(h.samples[name])
		for _, s := range info.Stats {
			if len(list) == 0 || s.Timestamp.After(list[len(list)-1].Timestamp) {
				list = append(list, s)
			}
		}
		if n := len(list); n > 0 {
			newest := list[n-1].Timestamp
			list = slices.DeleteFunc(list, func(s *model.ContainerStats) bool { return newest.Sub(s.Timestamp) > keep })
			list = list[max(0, len(list)-most):]
		}
		now[name] = list
		copied := *info
		copied.Stats = list
		out[name] = &copied
	}
	h.samples = now
	if h.forget == nil {
		h.forget = time.AfterFunc(keep, func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.samples = nil
		})
	} else {
		h.forget.Reset(keep)
	}
	return out
}

// tree holds all cgroups at one time, by name.
type tree map[string]*model.ContainerInfo

// parent returns the nearest reported cgroup above; those between are not reported.
func (t tree) parent(name string) string {
	for {
		at := strings.LastIndexByte(name, '/')
		if at <= 0 {
			return "/"
		}
		if name = name[:at]; t[name] != nil {
			return name
		}
	}
}

// names returns the selected names, sorted.
func (t tree) names(keep func(name string, info *model.ContainerInfo) bool) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(t)), func(name string) bool { return !keep(name, t[name]) })
}

// children returns the names of the cgroups with this parent.
func (t tree) children(name string) []string {
	return t.names(func(other string, _ *model.ContainerInfo) bool { return other != name && t.parent(other) == name })
}

// within returns the name itself and the names below it.
func (t tree) within(name string) []string {
	return t.names(func(other string, _ *model.ContainerInfo) bool {
		return other == name || strings.HasPrefix(other, strings.TrimSuffix(name, "/")+"/")
	})
}

// shortID is the length of a shortened container ID.
const shortID = 12

// containers returns the names of the cgroups of pods' containers; with an ID, or a prefix of one, of that container.
func (t tree) containers(id string) []string {
	return t.names(func(_ string, info *model.ContainerInfo) bool {
		return info.Spec.Labels[cri.LabelContainerName] != "" && len(info.Aliases) > 0 &&
			(id == "" || info.Aliases[0] == id || len(id) >= shortID && strings.HasPrefix(info.Aliases[0], id))
	})
}

// title returns a readable name of a cgroup.
func title(info *model.ContainerInfo) string {
	labels := info.Spec.Labels
	pod := labels[cri.LabelPodNamespace] + "/" + labels[cri.LabelPodName]
	switch {
	case info.Name == "/":
		return "node"
	case pod == "/":
		return info.Name[strings.LastIndexByte(info.Name, '/')+1:]
	case labels[cri.LabelContainerName] != "":
		return pod + "/" + labels[cri.LabelContainerName]
	case len(info.Aliases) > 0:
		return pod + " (sandbox)"
	}
	return pod
}
