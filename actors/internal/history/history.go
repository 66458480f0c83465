// Package history keeps the figures of the last quarter of an hour in bounded memory, for charts. Figures are recorded only while
// they are read, and for an hour after the last request.
package history

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"time"

	api "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

const (
	// Every is the time between two samples.
	Every = 10 * time.Second
	// Samples is the number of samples that are kept: 15 minutes.
	Samples = 90
	// Idle is the time after the last request at which recording ends, and all samples are dropped.
	Idle = time.Hour
	// maxSeries bounds the series of all pods and containers; at most 6 MiB.
	maxSeries = 2000
)

// The indexes of the figures of a sample.
const (
	cpu = iota
	workingSet
	rss
	received
	sent
	disk
	processes
	figures
)

// Series has the samples of the node, a pod or a container, oldest first.
type Series struct {
	// Name is the name of the container; empty for the node or pod itself.
	Name    string   `json:"name"`
	Samples []Sample `json:"samples"`
}

// Sample has the figures of one moment; unmeasured figures are absent.
type Sample struct {
	At         time.Time `json:"at"`
	CPU        *float64  `json:"cpuCores,omitempty"`
	WorkingSet *float64  `json:"workingSetBytes,omitempty"`
	RSS        *float64  `json:"rssBytes,omitempty"`
	Received   *float64  `json:"receivedBytesPerSecond,omitempty"`
	Sent       *float64  `json:"sentBytesPerSecond,omitempty"`
	Disk       *float64  `json:"diskBytes,omitempty"` // of a pod, its ephemeral storage; of the node, its file system
	Processes  *float64  `json:"processes,omitempty"`
}

// key identifies a series by the UID of the pod, which is empty for the node, and the name of the container.
type key struct{ uid, name string }

// ring has one point per sample time, and the counters of the newest sample for the next rate.
type ring struct {
	points         [Samples][figures]float32 // NaN: not measured
	seen           int                       // number of the newest sample with this series
	rx, tx         float64
	countersBefore bool
}

// History records samples. The zero value is ready to use. Safe for concurrent use.
type History struct {
	mu     sync.Mutex
	asked  time.Time
	count  int // samples recorded since recording began
	times  [Samples]time.Time
	series map[key]*ring
}

// Request keeps recording on until Idle has passed, and reports whether the newest sample is missing or old: the recorder
// must be started.
func (h *History) Request(now time.Time) (start bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked = now
	return h.count == 0 || now.Sub(h.times[(h.count-1)%Samples]) > 2*Every
}

// Active reports whether recording continues. When it ends, all samples are dropped.
func (h *History) Active(now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.asked.IsZero() && now.Sub(h.asked) < Idle {
		return true
	}
	h.asked, h.count, h.series = time.Time{}, 0, nil
	return false
}

// Add records the figures of one moment. Containers are recorded last, so that they are the first to be left out above maxSeries.
// A series without a sample for the whole time is dropped.
func (h *History) Add(at time.Time, s *api.Summary) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.series == nil {
		h.series = map[key]*ring{}
	}
	slot := h.count % Samples
	elapsed := 0.0
	if h.count > 0 {
		elapsed = at.Sub(h.times[(h.count-1)%Samples]).Seconds()
	}
	h.times[slot] = at
	for k, r := range h.series {
		r.points[slot] = unmeasured()
		if h.count-r.seen >= Samples {
			delete(h.series, k)
		}
	}
	n := &s.Node
	h.put(key{}, elapsed, gauges(n.CPU, n.Memory, n.Fs, processesOf(n.Rlimit, nil)), n.Network)
	for i := range n.SystemContainers {
		c := &n.SystemContainers[i]
		h.put(key{name: c.Name}, elapsed, gauges(c.CPU, c.Memory, nil, nil), nil)
	}
	for i := range s.Pods {
		p := &s.Pods[i]
		values := gauges(p.CPU, p.Memory, p.EphemeralStorage, processesOf(nil, p.ProcessStats))
		h.put(key{uid: p.PodRef.UID}, elapsed, values, p.Network)
	}
	for i := range s.Pods {
		for j := range s.Pods[i].Containers {
			c := &s.Pods[i].Containers[j]
			h.put(key{s.Pods[i].PodRef.UID, c.Name}, elapsed, gauges(c.CPU, c.Memory, c.Rootfs, nil), nil)
		}
	}
	h.count++
}

// put records one series. A rate needs an earlier sample with smaller or equal counters. h.mu is held.
func (h *History) put(k key, elapsed float64, values [figures]float32, n *api.NetworkStats) {
	r := h.series[k]
	if r == nil {
		if len(h.series) >= maxSeries {
			return
		}
		r = &ring{}
		for i := range r.points {
			r.points[i] = unmeasured()
		}
		h.series[k] = r
	}
	if n != nil && n.RxBytes != nil && n.TxBytes != nil {
		rx, tx := float64(*n.RxBytes), float64(*n.TxBytes)
		if r.countersBefore && r.seen == h.count-1 && elapsed > 0 && rx >= r.rx && tx >= r.tx {
			values[received], values[sent] = float32((rx-r.rx)/elapsed), float32((tx-r.tx)/elapsed)
		}
		r.rx, r.tx, r.countersBefore = rx, tx, true
	}
	r.points[h.count%Samples], r.seen = values, h.count
}

// Of returns the series of a pod and its containers, or of the node and its system containers where uid is empty. The pod
// itself comes first, then the containers by name.
func (h *History) Of(uid string) []Series {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := []Series{}
	for k, r := range h.series {
		if k.uid == uid {
			out = append(out, h.read(k.name, r))
		}
	}
	slices.SortFunc(out, func(a, b Series) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func (h *History) read(name string, r *ring) Series {
	out := Series{Name: name, Samples: []Sample{}}
	for i := max(0, h.count-Samples); i < h.count; i++ {
		p := r.points[i%Samples]
		s := Sample{At: h.times[i%Samples]}
		some := false
		for n, to := range []**float64{&s.CPU, &s.WorkingSet, &s.RSS, &s.Received, &s.Sent, &s.Disk, &s.Processes} {
			if v := float64(p[n]); !math.IsNaN(v) {
				*to, some = &v, true
			}
		}
		if some {
			out.Samples = append(out.Samples, s)
		}
	}
	return out
}

func unmeasured() (out [figures]float32) {
	for i := range out {
		out[i] = float32(math.NaN())
	}
	return out
}

func gauges(c *api.CPUStats, m *api.MemoryStats, fs *api.FsStats, running *uint64) [figures]float32 {
	out := unmeasured()
	set := func(n int, v *uint64, unit float64) {
		if v != nil {
			out[n] = float32(float64(*v) / unit)
		}
	}
	if c != nil {
		set(cpu, c.UsageNanoCores, 1e9)
	}
	if m != nil {
		set(workingSet, m.WorkingSetBytes, 1)
		set(rss, m.RSSBytes, 1)
	}
	if fs != nil {
		set(disk, fs.UsedBytes, 1)
	}
	set(processes, running, 1)
	return out
}

func processesOf(node *api.RlimitStats, pod *api.ProcessStats) *uint64 {
	switch {
	case pod != nil:
		return pod.ProcessCount
	case node != nil && node.NumOfRunningProcesses != nil:
		n := uint64(max(0, *node.NumOfRunningProcesses))
		return &n
	}
	return nil
}
