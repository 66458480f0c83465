package resources

import (
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/linux/cgroups"
	"github.com/playlet-dev/playlet/actors/internal/metrics"
	"github.com/playlet-dev/playlet/actors/internal/reconcile"
	"github.com/playlet-dev/playlet/messages"
)

// podDriver makes and removes the cgroups of pods, by UID. The actual state is the cgroup as the runtime's parent.
type podDriver struct {
	tree    *cgroups.Tree
	foreign func(uid string) bool
}

func (d podDriver) Ensure(_ context.Context, op reconcile.Operation[*v1.Pod, string]) (string, error) {
	defer metrics.Since(metrics.CgroupTime, time.Now(), "create")
	return d.tree.EnsurePod(op.Desired)
}

// Remove implements reconcile.Driver. It kills the remaining processes first.
func (d podDriver) Remove(ctx context.Context, uid string) error {
	defer metrics.Since(metrics.CgroupTime, time.Now(), "destroy")
	return d.tree.RemovePod(ctx, uid)
}

// Inventory implements reconcile.Driver. It omits other agents' cgroups.
func (d podDriver) Inventory(context.Context) ([]string, error) {
	uids, err := d.tree.Pods()
	return slices.DeleteFunc(uids, func(uid string) bool {
		return messages.CheckUID(uid) != nil || d.foreign != nil && d.foreign(uid)
	}), err
}

// nodeDriver makes kubepods and the cgroups of the QoS classes, which are one object, weighted by the requests of the running
// pods. They are never removed.
type nodeDriver struct{ tree *cgroups.Tree }

func (d nodeDriver) Ensure(_ context.Context, op reconcile.Operation[[]*v1.Pod, struct{}]) (struct{}, error) {
	defer metrics.Since(metrics.CgroupTime, time.Now(), "update")
	return struct{}{}, d.tree.ApplyNode(op.Desired)
}

func (nodeDriver) Remove(context.Context, string) error { return nil }

func (nodeDriver) Inventory(context.Context) ([]string, error) { return nil, nil }
