package stats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/cadvisor/lib/model"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/internal/history"
	"github.com/playlet-dev/playlet/actors/internal/podspec"
	"github.com/playlet-dev/playlet/actors/stats/cgroupstats"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/cri/facts"
	"github.com/playlet-dev/playlet/messages"
)

const (
	// fullAge is the maximum age of the figures of /stats/summary and /metrics/cadvisor. It is cAdvisor's housekeeping interval.
	fullAge = 10 * time.Second
	// resourceAge is the maximum age of CPU and memory in answers with nothing else.
	resourceAge = 5 * time.Second
	// machineAge is the maximum age of properties that rarely change.
	machineAge = 5 * time.Minute
	// partTimeout bounds how long a request waits for one kind of figures.
	partTimeout = 5 * time.Second
)

// CRI is the part of *cri.Client that the collector calls.
type CRI interface {
	ListContainerStats(ctx context.Context, filter *runtimeapi.ContainerStatsFilter) ([]*runtimeapi.ContainerStats, error)
	ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error)
	PodSandboxStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.PodSandboxStatusResponse, error)
}

// Options are the sources of figures.
type Options struct {
	NodeName string
	Board    *board.Board
	CRI      CRI
	// RootDir is the agent's folder, on the node's file system; PodLogsDir contains the logs of pods.
	RootDir, PodLogsDir string
	// Kubepods returns the path of the cgroup of all pods, in the cgroup driver's spelling; empty if there is none.
	Kubepods func() string
	// System returns the paths of the cgroups reported by /stats/summary in addition to pods, by its names for them ("kubelet",
	// "runtime", "misc"). It is called for each reading, outside of any actor.
	System func() map[string]string
	// Persistent returns the usage of the volumes of a pod's claims, of CSI drivers and of nfs, by the pod's names for them. It
	// may be slow; ctx bounds it. With an error it returns the known figures. It may be nil.
	Persistent func(context.Context, *v1.Pod) (map[string]VolumeUsage, error)
	// UsageAge is the maximum age of the figures of volumes [volumeStatsAggPeriod]. 0 means a minute; a negative value disables
	// the measurement.
	UsageAge time.Duration
	// Now is the clock; nil: the machine's.
	Now func() time.Time
}

// VolumeUsage is the usage of a volume; unknown figures are 0.
type VolumeUsage struct{ Bytes, Inodes VolumeAmount }

// VolumeAmount is of bytes or of inodes.
type VolumeAmount struct{ Total, Used, Free uint64 }

// Collector collects figures when they are read. There is one per process, which outlives the actor. Safe for concurrent use.
type Collector struct {
	opts    Options
	booted  time.Time
	usage   *usageBoard
	history history.History
	machine *part[*model.MachineInfo]
	cgroups *part[cgroupstats.Set]
	runtime *part[runtimeFigures]
	node    *part[space]
	images  *part[imageSpace]
	mounted *part[[]model.FsStats]
	pause   *part[string]
	sandbox atomic.Pointer[string] // the ID of a running one, whose status has the image

	mu   sync.Mutex
	tell func(to messages.Address, msg any) // nil until the tree runs
}

// runtimeFigures are the CRI's figures of running containers, by ID.
type runtimeFigures map[string]*runtimeapi.ContainerStats

// NewCollector returns a collector. Without cgroups it collects all else, and each answer reports the missing figures.
func NewCollector(o Options) *Collector {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.UsageAge == 0 {
		o.UsageAge = time.Minute
	}
	c := &Collector{opts: o, booted: bootTime(), usage: newUsageBoard()}
	c.machine = newPart("the machine", partTimeout, o.Now, readMachine)
	mounts, err := cgroupstats.Mounts()
	reader := &cgroupstats.Reader{
		Mounts: mounts, Root: "/", PID: os.Getpid(), Kubepods: o.Kubepods, System: func() []string {
			return values(o.System())
		}, Containers: c.containerIDs, Now: o.Now,
	}
	c.cgroups = newPart("cgroups", partTimeout, o.Now, func() (cgroupstats.Set, error) {
		if err != nil {
			return nil, err
		}
		return readWithRates(reader)
	})
	c.runtime = newPart("the runtime's figures of containers", partTimeout, o.Now, c.askRuntime)
	c.node = newPart("the node's file system", partTimeout, o.Now, func() (space, error) { return spaceOf(o.RootDir) })
	c.images = newPart("the images' file system", partTimeout, o.Now, c.readImages)
	c.pause = newPart("the image of sandboxes", partTimeout, o.Now, c.askSandboxImage)
	c.mounted = newPart("the mounted file systems", partTimeout, o.Now, func() ([]model.FsStats, error) {
		return readMounted(o.RootDir)
	})
	return c
}

// firstRate is the interval for the first rate of CPU usage.
const firstRate = 100 * time.Millisecond

// readWithRates reads twice if there is no earlier reading to compute rates from.
func readWithRates(r *cgroupstats.Reader) (cgroupstats.Set, error) {
	set, err := r.Read()
	if root := set["/"]; err != nil || root == nil || root.Stats() == nil || root.Cores != nil {
		return set, err
	}
	time.Sleep(firstRate)
	return r.Read()
}

// Attach connects the tree with the stats actor, which walks volumes. It may be called once the tree runs.
func (c *Collector) Attach(tell func(to messages.Address, msg any)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tell = tell
}

// withTimeout bounds a reading of the runtime: the client's own timeout is longer than any reader waits.
func withTimeout[T any](read func(ctx context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 4*partTimeout)
	defer cancel()
	return read(ctx)
}

// askRuntime lists the figures of all containers; if they do not fit into one message, pod by pod.
func (c *Collector) askRuntime() (runtimeFigures, error) {
	list, err := withTimeout(func(ctx context.Context) (list []*runtimeapi.ContainerStats, err error) {
		if list, err = c.opts.CRI.ListContainerStats(ctx, nil); !cri.IsTooLarge(err) {
			return list, err
		}
		for _, p := range c.opts.Board.Now().Pods {
			filter := &runtimeapi.ContainerStatsFilter{LabelSelector: facts.PodFilter(string(p.Pod.UID))}
			some, err := c.opts.CRI.ListContainerStats(ctx, filter)
			if err != nil {
				return nil, err
			}
			list = append(list, some...)
		}
		return list, nil
	})
	out := runtimeFigures{}
	for _, s := range list {
		out[s.GetAttributes().GetId()] = s
	}
	return out, err
}

// askSandboxImage asks the runtime for the image of its sandboxes, which is one of its settings. Runtimes report it outside the
// CRI, in the verbose status of a sandbox; it returns "" if there is none.
func (c *Collector) askSandboxImage() (string, error) {
	id := c.sandbox.Load()
	if id == nil {
		return "", nil
	}
	status, err := withTimeout(func(ctx context.Context) (*runtimeapi.PodSandboxStatusResponse, error) {
		return c.opts.CRI.PodSandboxStatus(ctx, *id, true)
	})
	if err != nil {
		return "", err
	}
	var info struct {
		Image string `json:"image"`
	}
	if json.Unmarshal([]byte(status.GetInfo()["info"]), &info) != nil {
		return "", nil // the format is the runtime's own
	}
	return info.Image, nil
}

// containerIDs returns the IDs of all containers on the board.
func (c *Collector) containerIDs() map[string]bool {
	out := map[string]bool{}
	for _, p := range c.opts.Board.Now().Pods {
		for status := range podspec.Statuses(p.Status) {
			out[bareID(status.ContainerID)] = true
		}
	}
	delete(out, "")
	return out
}

// bareID returns a container's ID as used in the CRI; in a status it is "containerd://<id>".
func bareID(id string) string {
	_, bare, _ := strings.Cut(id, "://")
	return bare
}

// collect reads figures that are older than age. all includes disks and the runtime. The volumes of pods in urgent are measured
// unless that was done in the last second.
func (c *Collector) collect(ctx context.Context, age time.Duration, all bool, urgent urgency) *figures {
	snapshot := c.opts.Board.Now()
	f := &figures{at: c.opts.Now(), system: c.opts.System()}
	var mu sync.Mutex
	var reading sync.WaitGroup
	begin := func(read func() error) {
		reading.Go(func() {
			if err := read(); err != nil {
				mu.Lock()
				defer mu.Unlock()
				f.lacks = append(f.lacks, err.Error())
			}
		})
	}
	var runtime runtimeFigures
	begin(func() (err error) { f.cgroups, err = c.cgroups.get(ctx, age); return err })
	if all {
		begin(func() (err error) { runtime, err = c.runtime.get(ctx, age); return err })
		begin(func() (err error) { f.disk, err = c.node.get(ctx, age); return err })
		begin(func() (err error) { f.images, err = c.images.get(ctx, age); return err })
		if c.opts.UsageAge > 0 && !urgent.skip {
			begin(func() error { return c.measureUsage(ctx, snapshot, urgent) })
		}
	}
	reading.Wait()
	f.join(snapshot, runtime)
	if !all && f.blind() { // a runtime whose containers have no cgroups here
		runtime, err := c.runtime.get(ctx, age)
		if err != nil {
			f.lacks = append(f.lacks, err.Error())
		}
		f.join(snapshot, runtime)
	}
	for _, pods := range [][]podFigures{f.pods, f.idle} {
		for i := range pods {
			p := &pods[i]
			p.usage = c.usage.of(p.Pod.Pod.UID)
			if err := p.usage.figuresError(); all && err != nil {
				f.lacks = append(f.lacks, fmt.Sprintf("pod %s/%s: %v", p.Pod.Pod.Namespace, p.Pod.Pod.Name, err))
			}
		}
	}
	slices.Sort(f.lacks)
	return f
}

// urgency selects the pods that eviction needs figures of; short is set if the node's disk is short.
type urgency struct {
	pods  map[types.UID]bool
	short bool
	skip  bool // no walk is requested
}

// errNoTree is returned while the actors do not run.
var errNoTree = errors.New("the figures of volumes: the stats actor does not run")

// measureUsage requests walks of the pods that are due, and waits a little for pods without figures.
func (c *Collector) measureUsage(ctx context.Context, snapshot *board.Snapshot, urgent urgency) error {
	c.mu.Lock()
	tell := c.tell
	c.mu.Unlock()
	if tell == nil {
		return errNoTree
	}
	pods := make([]*v1.Pod, 0, len(snapshot.Pods))
	for _, p := range snapshot.Pods {
		pods = append(pods, p.Pod)
	}
	now := c.opts.Now() // before the actor's time, so that the awaited pods are measured
	tell(messages.Stats, messages.MeasureUsage{Pods: pods, Urgent: urgent.pods, Short: urgent.short})
	wait := firstWalk
	if until, ok := ctx.Deadline(); ok && urgent.short { // reserve time for the answer, which needs the decision
		wait = max(wait, time.Until(until)-firstWalk)
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	return c.usage.await(ctx, pods, func(p *v1.Pod, u *podUsage) bool { return c.awaits(p, u, urgent, now) })
}

// awaits reports whether an answer waits for a pod: for urgent ones if there are any, and otherwise for first walks.
func (c *Collector) awaits(p *v1.Pod, u *podUsage, urgent urgency, now time.Time) bool {
	if len(urgent.pods) > 0 {
		return urgent.pods[p.UID] && u.due(now, c.ageOf(p, urgent))
	}
	return u == nil || u.at.IsZero() && u.partial
}
