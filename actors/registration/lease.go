package registration

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/playlet-dev/playlet/actors/internal/apiclient"
	"github.com/playlet-dev/playlet/supervisors"
)

// leaseState is the state of the node's lease.
type leaseState struct {
	last     *coordinationv1.Lease // as last written
	renewing bool
	failures int
	failed   string
	renewed  time.Time
}

type (
	leaseDue    struct{}
	leaseResult struct {
		lease *coordinationv1.Lease
		// waiting means that the lease does not exist, and cannot be created before its owner, the Node.
		waiting bool
		at      time.Time
		err     error
	}
)

// renewEvery returns the period between renewals: a quarter of the lease's duration, as with the kubelet.
func (a *actor) renewEvery() time.Duration { return a.opts.LeaseDuration / 4 }

// renew renews the lease, unless a renewal is in progress.
func (a *actor) renew(ctx supervisors.Context) {
	if a.lease.renewing {
		return
	}
	a.lease.renewing = true
	client, name, last, node := a.opts.Client.CoordinationV1().Leases(v1.NamespaceNodeLease), a.opts.Desired.Name, a.lease.last,
		a.state.node
	seconds, now := int32(a.opts.LeaseDuration/time.Second), ctx.Now() //nolint:gosec // an int32 in the configuration
	ctx.Do(supervisors.Work{Name: "RenewLease", Timeout: max(a.renewEvery(), time.Second), Run: func(ctx context.Context) any {
		m := renewLease(ctx, client, name, last, func(l *coordinationv1.Lease) { fill(l, name, seconds, node, now) }, node != nil)
		m.at = now
		return m
	}})
}

// fill sets holder, duration and time of the lease, and the Node as its owner. The time always increases: the node controller
// ignores a renewal with an earlier time than the one before, and would call a node dead until a clock that was set back has
// caught up (kubernetes/kubernetes#113081).
func fill(l *coordinationv1.Lease, name string, seconds int32, node *v1.Node, now time.Time) {
	renewed := metav1.NewMicroTime(now.Truncate(time.Microsecond)) // as it is sent
	if last := l.Spec.RenewTime; last != nil && !renewed.After(last.Time) {
		renewed = metav1.NewMicroTime(last.Add(time.Microsecond))
	}
	l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds, l.Spec.RenewTime = &name, &seconds, &renewed
	if node == nil || len(l.OwnerReferences) == 1 && l.OwnerReferences[0].UID == node.UID {
		return
	}
	l.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: name, UID: node.UID}}
}

// renewLease updates the lease from its last known version, without a read: the agent is its only writer. On a conflict it reads
// the lease first.
func renewLease(ctx context.Context, client coordinationclient.LeaseInterface, name string, last *coordinationv1.Lease,
	fill func(*coordinationv1.Lease), known bool) leaseResult {
	if last != nil {
		next := last.DeepCopy()
		fill(next)
		lease, err := client.Update(ctx, next, metav1.UpdateOptions{})
		if err == nil || !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return leaseResult{lease: lease, err: err}
		}
	}
	found, err := client.Get(ctx, name, metav1.GetOptions{})
	switch {
	case err == nil:
		next := found.DeepCopy()
		fill(next)
		lease, err := client.Update(ctx, next, metav1.UpdateOptions{})
		return leaseResult{lease: lease, err: err}
	case !apierrors.IsNotFound(err):
		return leaseResult{err: err}
	case !known:
		return leaseResult{waiting: true}
	}
	next := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: v1.NamespaceNodeLease}}
	fill(next)
	lease, err := client.Create(ctx, next, metav1.CreateOptions{})
	return leaseResult{lease: lease, err: err}
}

func (a *actor) renewedLease(ctx supervisors.Context, m leaseResult) {
	l := &a.lease
	l.renewing = false
	rest := a.renewEvery()
	rest += time.Duration(float64(rest) * 0.04 * a.opts.Random()) // the kubelet's jitter
	switch {
	case m.waiting: // the creation of the Node renews the lease at once
		l.last = nil
	case m.err != nil:
		l.failures++
		rest = min(retry.After(l.failures, 0), a.renewEvery())
		why := "the node's lease cannot be renewed: " + apiclient.Explain(m.err, a.opts.Desired.Name)
		if apierrors.IsNotFound(m.err) {
			why = "the node's lease cannot be created: the namespace " + v1.NamespaceNodeLease + " is not there yet"
		}
		if why != l.failed {
			ctx.Log().Warn("renewing the node's lease failed; will retry", "error", why)
		}
		l.failed = why
	default:
		if l.failed != "" {
			ctx.Log().Info("the node's lease is renewed again")
		}
		l.last, l.failures, l.failed, l.renewed = m.lease, 0, "", m.at
	}
	if a.leaseTimer != nil {
		a.leaseTimer.Cancel()
	}
	a.leaseTimer = ctx.After(rest, leaseDue{})
	a.publish()
}
