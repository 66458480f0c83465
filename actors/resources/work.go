package resources

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/cgroups"
	"github.com/playlet-dev/playlet/actors/internal/host"
)

// Operations is the process-wide table of work that outlives the actor that asked for it. Do joins what is under way
// with the key or begins fn; when ctx ends it returns and leaves fn running, to at most the timeout.
type Operations interface {
	Do(ctx context.Context, key string, timeout time.Duration, fn func(context.Context) (any, error)) (any, error)
}

// operationTimeout ends an operation that nobody waits for any more.
const operationTimeout = time.Minute

// work is what is done outside the mailbox.
type work struct {
	tree *cgroups.Tree
	ops  Operations
}

// exclusive runs fn as the one operation with this key. What an earlier life of the actor began is joined when its result
// fits, and otherwise awaited.
func exclusive[T any](ctx context.Context, ops Operations, key string, fits func(T) bool, fn func(context.Context) T) (T, error) {
	for {
		result, err := ops.Do(ctx, "cgroups/"+key, operationTimeout, func(ctx context.Context) (any, error) { return fn(ctx), nil })
		if err = host.Joined(err); err != nil {
			var none T
			return none, err
		}
		if mine, ok := result.(T); ok && fits(mine) {
			return mine, nil
		}
	}
}

func (w work) make(ctx context.Context, uid string, pod *v1.Pod) made {
	out, err := exclusive(ctx, w.ops, uid, func(m made) bool { return m.pod == pod }, func(context.Context) made {
		parent, err := w.tree.EnsurePod(pod)
		return made{pod, parent, err}
	})
	if err != nil {
		return made{pod: pod, err: err}
	}
	return out
}

func (w work) remove(ctx context.Context, uid string) removed {
	out, err := exclusive(ctx, w.ops, uid, func(removed) bool { return true }, func(ctx context.Context) removed {
		return removed{w.tree.RemovePod(ctx, uid)}
	})
	if err != nil {
		return removed{err}
	}
	return out
}

// nodeDone is the result of an operation on the groups of the node, of these pods.
type nodeDone struct {
	pods []*v1.Pod
	err  error
}

func (w work) node(ctx context.Context, pods []*v1.Pod) nodeMade {
	same := func(d nodeDone) bool { return len(d.pods) == len(pods) && (len(pods) == 0 || &d.pods[0] == &pods[0]) }
	out, err := exclusive(ctx, w.ops, "node", same, func(context.Context) nodeDone {
		return nodeDone{pods, w.tree.ApplyNode(pods)}
	})
	if err != nil {
		return nodeMade{err}
	}
	return nodeMade{out.err}
}

func (w work) list(ctx context.Context) groupsFound {
	result, err := w.ops.Do(ctx, "cgroups-look", operationTimeout, func(context.Context) (any, error) {
		uids, err := w.tree.Pods()
		return groupsFound{uids, err}, nil
	})
	if err = host.Joined(err); err != nil {
		return groupsFound{err: err}
	}
	found, _ := result.(groupsFound)
	return found
}
