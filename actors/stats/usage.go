package stats

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/playlet-dev/playlet/actors/internal/overdue"
)

const (
	// usageShare limits the time spent on walking a pod's volumes to one part in so many. Figures for a decision of eviction are
	// measured as often as possible.
	usageShare = 20
	// walkTimeout is how long a walk keeps its place among the few concurrent ones. Then it goes on in turns.
	walkTimeout = 10 * time.Second
	// claimsTimeout limits the questions to CSI drivers about the volumes of one pod. No walk waits for them, but answers within
	// claimsPatience are in the same figures.
	claimsTimeout  = 10 * time.Second
	claimsPatience = time.Second
	// publishEvery is the interval between two publications of partial figures.
	publishEvery = time.Second
	// firstWalk is how long an answer waits for pods that were never measured.
	firstWalk = 2 * time.Second
	// unbounded stands for no timeout: a walk ends when it is done, or when its pod is removed.
	unbounded = 365 * 24 * time.Hour
)

// maxCarried limits the consecutive walks that keep the previous figures: a pod that renames its folders without end cannot hide
// them from several walks in a row, and a pod that removes files is not judged by them for long.
const maxCarried = 3

// errInProgress explains partial figures.
var errInProgress = errors.New("volumes and logs are being measured; figures are lower bounds, or older where those are larger")

// podUsage is the space that a pod's volumes and files on the node use. Immutable once published.
type podUsage struct {
	at      time.Time // of the last walk's end; zero: none has ended
	took    time.Duration
	volumes map[string]space
	logs    map[string]space // by container
	podLogs space            // files of the pod's own beside its containers' folders
	// kept is the space of other files that the agent keeps for the pod and its containers can fill: /etc/hosts and the
	// termination logs.
	kept space
	// partial reports that the last walk has not come to its end, or has ended with an error. err is the reason. During a walk,
	// a figure of the files above is the one from before where that is larger, and bound has the sums of the walk alone. Without
	// bound, the figures above are lower bounds themselves.
	partial bool
	err     error
	bound   *podUsage
	// disturbed reports that entries vanished or moved during the last walk. carried is the number of walks in a row, at most
	// maxCarried, whose figures include those from before for that reason.
	disturbed bool
	carried   int
	// claims has the volumes of claims and of CSI drivers, which are not walked. claimsErr is the reason that some are missing.
	claims    map[string]space
	claimsErr error
}

// volume returns the figures of a volume, by the pod's name for it.
func (u *podUsage) volume(name string) (space, bool) {
	if s, ok := u.claims[name]; ok {
		return s, true
	}
	s, ok := u.volumes[name]
	return s, ok
}

// least returns the figures that are complete or lower bounds, for decisions.
func (u *podUsage) least() *podUsage {
	if u == nil || u.bound == nil {
		return u
	}
	out := *u.bound
	out.claims, out.claimsErr = u.claims, u.claimsErr
	return &out
}

// figuresError returns the reason that figures are missing or partial, or nil. u may be nil.
func (u *podUsage) figuresError() error {
	if u == nil {
		return nil
	}
	return errors.Join(u.err, u.claimsErr)
}

// due reports whether the figures must be measured again. Those for eviction are at most as old as a walk takes.
func (u *podUsage) due(now time.Time, age time.Duration) bool {
	if u == nil {
		return true
	}
	share := time.Duration(usageShare)
	if age <= urgentAge {
		share = 1
	}
	return now.Sub(u.at) >= max(age, share*u.took)
}

// unfinished returns the figures of a walk in progress. No figure is below its previous value.
func (u podUsage) unfinished(before *podUsage) *podUsage {
	bound := u
	bound.volumes, bound.logs = maps.Clone(u.volumes), maps.Clone(u.logs)
	u.partial, u.volumes, u.logs, u.bound = true, maps.Clone(u.volumes), maps.Clone(u.logs), &bound
	if before == nil {
		return &u
	}
	u.keep(before)
	u.at, u.took, u.carried, u.claims, u.claimsErr = before.at, before.took, before.carried, before.claims, before.claimsErr
	return &u
}

// keep raises the figures of walked files to those from before. The maps are u's own.
func (u *podUsage) keep(before *podUsage) {
	for name, s := range before.volumes {
		u.volumes[name] = u.volumes[name].atLeast(s)
	}
	for name, s := range before.logs {
		u.logs[name] = u.logs[name].atLeast(s)
	}
	u.podLogs, u.kept = u.podLogs.atLeast(before.podLogs), u.kept.atLeast(before.kept)
}

// ended returns the figures of a walk that has ended. Those of a disturbed walk include the previous figures, up to maxCarried
// walks in a row: otherwise a pod could hide files by renaming their folder during the walk.
func (u podUsage) ended(before *podUsage) *podUsage {
	if before == nil {
		return &u
	}
	u.claims, u.claimsErr = before.claims, before.claimsErr
	if u.disturbed && before.carried < maxCarried {
		u.volumes, u.logs, u.carried = maps.Clone(u.volumes), maps.Clone(u.logs), before.carried+1
		u.keep(before)
	}
	return &u
}

// atLeast returns s with the previous usage where that is larger.
func (s space) atLeast(before space) space {
	if s == (space{}) {
		return before // it was not walked yet
	}
	s.used, s.inodesUsed = max(s.used, before.used), max(s.inodesUsed, before.inodesUsed)
	return s
}

// usageBoard holds the figures of walks, for readers without a message to the actor. They outlive the actor's restarts. Safe for
// concurrent use.
type usageBoard struct {
	mu      sync.Mutex
	pods    map[types.UID]*podUsage
	walks   map[types.UID]*podWalk
	changed chan struct{} // closed at the next change
	turns   *turnQueue    // of walks that take long
}

// podWalk measures one pod, in one walk at a time.
type podWalk struct {
	ctx     context.Context // ends with the pod
	cancel  context.CancelFunc
	files   *overdue.Reader[struct{}]         // walks, and publishes the figures itself
	claims  *overdue.Reader[map[string]space] // asks CSI drivers
	running atomic.Bool

	namespace string
	long      atomic.Bool // it goes on in turns with others
}

func newUsageBoard() *usageBoard {
	return &usageBoard{pods: map[types.UID]*podUsage{}, walks: map[types.UID]*podWalk{}, changed: make(chan struct{}),
		turns: newTurns(longWalks, time.Now)}
}

// of returns a pod's figures, or nil.
func (b *usageBoard) of(uid types.UID) *podUsage {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.pods[uid]
}

// put publishes the figures that next computes from the previous ones, which may be nil.
func (b *usageBoard) put(uid types.UID, next func(before *podUsage) *podUsage) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pods[uid] = next(b.pods[uid])
	close(b.changed)
	b.changed = make(chan struct{})
}

// keep drops all other pods, and ends their walks.
func (b *usageBoard) keep(pods map[types.UID]*v1.Pod) {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.pods, func(uid types.UID, _ *podUsage) bool { return pods[uid] == nil })
	maps.DeleteFunc(b.walks, func(uid types.UID, w *podWalk) bool {
		if pods[uid] == nil {
			w.cancel()
		}
		return pods[uid] == nil
	})
}

// walk returns the pod's walk, which measures its files and asks for its claims; both end with their context.
func (b *usageBoard) walk(p *v1.Pod, measure func(*podWalk), claims func(context.Context) (map[string]space, error),
) *podWalk {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w := b.walks[p.UID]; w != nil {
		return w
	}
	w := &podWalk{namespace: p.Namespace}
	w.ctx, w.cancel = context.WithCancel(context.Background()) // the request that began it may be gone; others join
	w.files = overdue.New("the volumes of the pod", unbounded, func() (struct{}, error) {
		w.long.Store(false)
		w.running.Store(true)
		defer b.turns.leave(w)
		defer w.running.Store(false)
		measure(w)
		return struct{}{}, nil
	})
	w.claims = overdue.New("the volumes of CSI drivers", 2*claimsTimeout, func() (map[string]space, error) {
		ctx, cancel := context.WithTimeout(w.ctx, claimsTimeout)
		defer cancel()
		return claims(ctx)
	})
	b.walks[p.UID] = w
	return w
}

// running reports whether a walk of the pod is in progress.
func (b *usageBoard) running(uid types.UID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.walks[uid]
	return w != nil && w.running.Load()
}

// takeTurns lets the pod's walk go on in turns with others.
func (b *usageBoard) takeTurns(uid types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w := b.walks[uid]; w != nil {
		w.long.Store(true)
	}
}

// pause blocks a walk that takes long while it is the turn of others.
func (b *usageBoard) pause(w *podWalk) {
	if w.long.Load() {
		b.turns.pass(w.ctx, w)
	}
}

// await waits until no pod lacks figures. The error has the number of pods that still do when ctx ends.
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

// measureFiles walks the pod's files and publishes the figures, also while the walk is in progress.
func (c *Collector) measureFiles(p *v1.Pod, w *podWalk) {
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		c.askClaims(p.UID, w)
	}()
	m := measurer{rootDir: c.opts.RootDir, podLogsDir: c.opts.PodLogsDir, pod: p, batch: func() { c.usage.pause(w) },
		report: func(u podUsage) { c.usage.put(p.UID, u.unfinished) }}
	u := m.measure(w.ctx)
	if w.ctx.Err() != nil {
		return // the pod is gone
	}
	patience := time.NewTimer(claimsPatience)
	defer patience.Stop()
	select {
	case <-answered:
	case <-patience.C:
	}
	c.usage.put(p.UID, func(before *podUsage) *podUsage {
		next := u.ended(before)
		next.at = c.opts.Now()
		return next
	})
}

// askClaims asks CSI drivers for the figures of the pod's volumes, and publishes them.
func (c *Collector) askClaims(uid types.UID, w *podWalk) {
	claims, err := w.claims.Get(w.ctx)
	if w.ctx.Err() != nil || len(claims) == 0 && err == nil && c.usage.of(uid) == nil {
		return // the pod is gone, or has none
	}
	c.usage.put(uid, func(before *podUsage) *podUsage {
		u := podUsage{partial: true, err: errInProgress}
		if before != nil {
			u = *before
		}
		if err != nil { // the previous figures stay
			merged := maps.Clone(u.claims)
			if merged == nil {
				merged = map[string]space{}
			}
			maps.Copy(merged, claims)
			claims = merged
		}
		u.claims, u.claimsErr = claims, err
		return &u
	})
}

// persistentUsage asks CSI drivers and the kernel for the volumes of a pod that are not walked.
func (c *Collector) persistentUsage(ctx context.Context, p *v1.Pod) (map[string]space, error) {
	if c.opts.Persistent == nil {
		return nil, nil
	}
	all, err := c.opts.Persistent(ctx, p)
	out := make(map[string]space, len(all))
	for name, v := range all {
		out[name] = space{at: time.Now(), capacity: v.Bytes.Total, available: v.Bytes.Free, used: v.Bytes.Used,
			inodes: v.Inodes.Total, inodesFree: v.Inodes.Free, inodesUsed: v.Inodes.Used}
	}
	return out, err
}
