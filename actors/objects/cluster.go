package objects

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/playlet-dev/playlet/actors/internal/apiclient"
	"github.com/playlet-dev/playlet/actors/internal/objectset"
	"github.com/playlet-dev/playlet/actors/internal/shares"
)

const (
	// getsAtATime bounds concurrent reads, so that a slow server does not get all of them at once. Namespaces and pods have
	// shares.
	getsAtATime = 32
	// getsWaiting is no bound: a read waits for a place as long as a pod names the object.
	getsWaiting = 1 << 20
)

// cluster holds a follower for each object of the API server that pods of this node name. It belongs to one incarnation of
// the actor; the board outlives it.
type cluster struct {
	opts  Options
	reads *shares.Limit
	woken chan struct{}
	now   func() time.Time

	mu        sync.Mutex
	life      context.Context // of all followers
	end       context.CancelFunc
	ended     bool
	running   sync.WaitGroup
	followers map[objectset.Ref]*follower
	kinds     map[string]*failureState // of objects that are followed whatever pods name
	panicked  any                      // the value of a follower's panic
	stack     string
}

func newCluster(opts Options) *cluster {
	c := &cluster{
		opts: opts, reads: shares.NewQueue("reads of objects", getsAtATime, getsWaiting),
		woken: make(chan struct{}, 1), now: time.Now,
		followers: map[objectset.Ref]*follower{}, kinds: map[string]*failureState{},
	}
	c.life, c.end = context.WithCancel(context.Background())
	return c
}

// setPods follows exactly the objects that these pods name. An immutable one, which is not followed, is read again for each new
// pod.
func (c *cluster) setPods(pods []*v1.Pod) {
	namers, first := map[objectset.Ref]map[types.UID]bool{}, map[objectset.Ref]types.UID{}
	for _, p := range pods {
		if objectset.OfAPIServer(p) {
			for r := range objectset.Refs(p) {
				if namers[r] == nil {
					namers[r], first[r] = map[types.UID]bool{}, p.UID
				}
				namers[r][p.UID] = true
			}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	for r, f := range c.followers {
		if namers[r] == nil {
			f.cancel()
			delete(c.followers, r)
		}
	}
	for _, r := range c.opts.Board.Keep(namers) {
		if f := c.followers[r]; f != nil && f.hasRead { // a first read in progress counts for the new pods, too
			f.cancel()
			delete(c.followers, r)
		}
	}
	for r := range namers {
		if c.followers[r] == nil {
			c.follow(r, first[r])
		}
	}
}

// follow begins to follow an object. Its reads count for the pod that named it first.
func (c *cluster) follow(r objectset.Ref, pod types.UID) {
	ctx, cancel := context.WithCancel(c.life)
	f := &follower{cluster: c, ref: r, pod: pod, cancel: cancel}
	c.followers[r] = f
	c.begin(func() {
		defer cancel()
		f.run(ctx)
	})
}

// begin runs a follower until the cluster's end. A panic of the follower is raised again in await.
func (c *cluster) begin(run func()) {
	c.running.Go(func() {
		defer func() {
			if p := recover(); p != nil {
				c.mu.Lock()
				c.panicked, c.stack = p, string(debug.Stack())
				c.mu.Unlock()
				c.wake()
			}
		}()
		run()
	})
}

// stop ends all followers and waits for them.
func (c *cluster) stop() {
	c.mu.Lock()
	c.ended = true
	c.mu.Unlock()
	c.end()
	c.running.Wait()
}

// put publishes an object, unless its follower has been replaced or ended.
func (c *cluster) put(f *follower, object any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended || c.followers[f.ref] != f {
		return
	}
	f.clear()
	f.hasRead = true
	if c.opts.Board.Put(f.ref, object) {
		c.wake()
	}
}

func (c *cluster) failed(f *follower, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended || c.followers[f.ref] != f {
		return
	}
	f.failureState.failed(err, c.now())
	c.opts.Board.Fail(f.ref, apiclient.Explained(err, c.opts.NodeName))
}

func (c *cluster) wake() {
	select {
	case c.woken <- struct{}{}:
	default:
	}
}

// await waits for news. It panics if a follower has panicked.
func (c *cluster) await(ctx context.Context) {
	select {
	case <-c.woken:
	case <-ctx.Done():
	}
	c.mu.Lock()
	broken, stack := c.panicked, c.stack
	c.mu.Unlock()
	if broken != nil {
		panic(fmt.Sprintf("%v, in a follower:\n%s", broken, stack))
	}
}
