package stats

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
	"github.com/playlet-dev/playlet/actors/internal/overdue"
)

const (
	// usageShare bounds the time that is spent on walking a pod's volumes: one part of it in so many.
	usageShare = 20
	// walkTimeout bounds the walk of one pod. What was counted before stays in force where it is not enough.
	walkTimeout = time.Minute
	// firstWalk is how long an answer waits for pods that were never measured.
	firstWalk = 2 * time.Second
)

// podUsage is what a pod's volumes and files on the node use. Immutable.
type podUsage struct {
	at      time.Time
	took    time.Duration
	volumes map[string]space
	logs    map[string]space // by container
	podLogs space            // files of the pod's own beside its containers' folders
	// kept is what else the agent keeps for the pod and its containers can fill: /etc/hosts and the termination logs.
	kept space
	err  error // what could not be measured; the figures are older or not whole
}

// due says that the figures are to be measured anew.
func (u *podUsage) due(now time.Time, age time.Duration) bool {
	return u == nil || now.Sub(u.at) >= max(age, usageShare*u.took)
}

// usageBoard is where the actor leaves its figures, for readers that ask no actor. They outlive its restarts. Safe for concurrent
// use.
type usageBoard struct {
	mu      sync.Mutex
	pods    map[types.UID]*podUsage
	walks   map[types.UID]*overdue.Reading[*podUsage]
	changed chan struct{} // closed at the next change
}

func newUsageBoard() *usageBoard {
	return &usageBoard{
		pods: map[types.UID]*podUsage{}, walks: map[types.UID]*overdue.Reading[*podUsage]{}, changed: make(chan struct{}),
	}
}

// of gives a pod's figures; nil: there are none yet.
func (b *usageBoard) of(uid types.UID) *podUsage {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.pods[uid]
}

// put takes a pod's figures. Those that failed are laid over the ones before.
func (b *usageBoard) put(uid types.UID, u *podUsage) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pods[uid] = u
	close(b.changed)
	b.changed = make(chan struct{})
}

// keep forgets all other pods.
func (b *usageBoard) keep(pods map[types.UID]*v1.Pod) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for uid := range b.pods {
		if pods[uid] == nil {
			delete(b.pods, uid)
			delete(b.walks, uid)
		}
	}
}

// walk is the pod's one walk at a time: of a file system that hangs, no second one is begun.
func (b *usageBoard) walk(uid types.UID, read func() (*podUsage, error)) *overdue.Reading[*podUsage] {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.walks[uid]
	if w == nil {
		w = overdue.New("the volumes of the pod", walkTimeout+partTimeout, read)
		b.walks[uid] = w
	}
	return w
}

// await waits until no pod lacks figures. The error says how many do when ctx ends.
func (b *usageBoard) await(ctx context.Context, pods []*v1.Pod, lacks func(*v1.Pod, *podUsage) bool) error {
	for {
		b.mu.Lock()
		missing, changed := 0, b.changed
		for _, p := range pods {
			if lacks(p, b.pods[p.UID]) {
				missing++
			}
		}
		b.mu.Unlock()
		if missing == 0 {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("the volumes and logs of %d pods are not measured yet", missing)
		}
	}
}

// measurer measures what pods use on the node's disks.
type measurer struct {
	rootDir, podLogsDir string
	persistent          func(context.Context, *v1.Pod) (map[string]VolumeUsage, error)
}

// asked are the kinds of volumes that are not walked, for others say what they use: they are as large as they like, and may lie
// on a server that hangs.
var asked = []string{"kubernetes.io~csi", "kubernetes.io~local-volume"}

// pod measures one pod. An error comes with what could be measured.
func (m measurer) pod(ctx context.Context, p *v1.Pod) (*podUsage, error) {
	began := time.Now()
	u := &podUsage{at: began, volumes: map[string]space{}, logs: map[string]space{}}
	u.err = errors.Join(m.volumes(ctx, p, u), m.logs(ctx, p, u))
	u.took = time.Since(began)
	return u, nil
}

// volumes measures the volumes in the pod's folder, <root-dir>/pods/<uid>/volumes/<plugin>/<volume>, and what is kept beside
// them: etc-hosts, and the termination logs containers/<container>/<attempt>.
func (m measurer) volumes(ctx context.Context, p *v1.Pod, u *podUsage) error {
	root, err := open(filepath.Join(m.rootDir, "pods"), string(p.UID))
	if root == nil {
		return err
	}
	defer func() { _ = root.Close() }() // it was only read
	if info, err := root.Lstat("etc-hosts"); err == nil && info.Mode().IsRegular() {
		u.kept = fileSpace(info)
	}
	words, err := used(ctx, root, "containers")
	errs := []error{err}
	u.kept.used, u.kept.inodesUsed = u.kept.used+words.used, u.kept.inodesUsed+words.inodesUsed
	plugins, err := root.Names("volumes")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(append(errs, err)...)
	}
	if m.persistent != nil {
		all, err := m.persistent(ctx, p)
		errs = append(errs, err)
		for name, v := range all {
			u.volumes[name] = space{at: time.Now(), capacity: v.Bytes.Total, available: v.Bytes.Free, used: v.Bytes.Used,
				inodes: v.Inodes.Total, inodesFree: v.Inodes.Free, inodesUsed: v.Inodes.Used}
		}
	}
	for _, plugin := range plugins {
		if slices.Contains(asked, plugin) {
			continue
		}
		names, err := root.Names(filepath.Join("volumes", plugin))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, name := range names {
			s, err := usedByVolume(ctx, root, filepath.Join("volumes", plugin, name))
			if err != nil {
				errs = append(errs, fmt.Errorf("volume %s: %w", name, err))
			}
			if !s.at.IsZero() {
				u.volumes[name] = s
			}
		}
	}
	return errors.Join(errs...)
}

// logs measures the pod's folder of logs, which has one a container.
func (m measurer) logs(ctx context.Context, p *v1.Pod, u *podUsage) error {
	root, err := open(m.podLogsDir, p.Namespace+"_"+p.Name+"_"+string(p.UID))
	if root == nil {
		return err
	}
	defer func() { _ = root.Close() }() // it was only read
	names, err := root.Names(".")
	errs := []error{err}
	for _, name := range names {
		info, err := root.Lstat(name)
		switch {
		case err != nil: // it is gone
		case info.IsDir():
			s, err := used(ctx, root, name)
			u.logs[name] = s
			errs = append(errs, err)
		case info.Mode().IsRegular():
			s := fileSpace(info)
			u.podLogs.used, u.podLogs.inodesUsed = u.podLogs.used+s.used, u.podLogs.inodesUsed+1
		}
	}
	return errors.Join(errs...)
}

// open opens a folder of a pod; nil without an error: there is none.
func open(dir, name string) (*safepath.Root, error) {
	if dir == "" || safepath.CheckElement(name) != nil {
		return nil, nil //nolint:nilnil // a pod with such a name has no folder
	}
	root, err := safepath.OpenRoot(dir)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return nil, err
	}
	sub, err := root.Sub(name)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return sub, errors.Join(err, root.Close())
}

func fileSpace(info fs.FileInfo) space {
	return space{used: uint64(info.Size()), inodesUsed: 1} //nolint:gosec // no file has less than nothing
}
