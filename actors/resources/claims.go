package resources

import (
	"context"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/playlet-dev/playlet/actors/internal/reconcile"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
	"github.com/playlet-dev/playlet/supervisors/backoff"
)

// ClaimManager prepares the ResourceClaims of pods; *dra.Manager implements it.
type ClaimManager interface {
	// Prepare and Unprepare block on drivers, the API server and the disk. They are idempotent.
	Prepare(ctx context.Context, pod *v1.Pod) error
	Unprepare(ctx context.Context, uid string) error
	// Holders returns the UIDs of the pods that use claims. It does not block.
	Holders() []string
}

const (
	// claimsTimeout is how long a result is awaited: longer than drivers have for a call, so that a driver that hangs is named.
	claimsTimeout = time.Minute
	// claimsOperation bounds one try.
	claimsOperation = 2 * time.Minute
)

// claimsRetry is the back-off of a pod's claims. Each try reads them from the API server. A driver that registers ends it.
var claimsRetry = backoff.Policy{First: time.Second, Max: 30 * time.Second}

// claims are the pods with ResourceClaims, by UID; the actual state is in the ClaimManager. A pod that is gone is found by its
// references in there.
type claims struct {
	pods  *reconcile.Reconciler[*v1.Pod, struct{}]
	asked map[string]bool // pods that await their release
}

// newClaims returns nil if the node has no claims.
func newClaims(m ClaimManager, ops reconcile.Operations) *claims {
	if m == nil {
		return nil
	}
	c := &claims{asked: map[string]bool{}}
	c.pods = reconcile.New(reconcile.Options[*v1.Pod, struct{}]{
		Name: "claims", Driver: claimDriver{m}, Report: c.report, Operations: ops, Prefix: "claims/",
		OperationTimeout: claimsOperation,
		Rules: reconcile.Rules[*v1.Pod, struct{}]{Same: sameClaims, Retry: claimsRetry, Timeout: claimsTimeout,
			RemoveTimeout: claimsTimeout, Grace: 2},
	})
	return c
}

// sameClaims reports whether two versions of a pod use the same claims.
func sameClaims(a, b *v1.Pod) bool {
	return a == b || equality.Semantic.DeepEqual(a.Spec.ResourceClaims, b.Spec.ResourceClaims) &&
		equality.Semantic.DeepEqual(a.Status.ResourceClaimStatuses, b.Status.ResourceClaimStatuses) &&
		equality.Semantic.DeepEqual(a.Status.ExtendedResourceClaimStatus, b.Status.ExtendedResourceClaimStatus)
}

// receive handles the messages about claims.
func (c *claims) receive(ctx supervisors.Context, msg any) bool {
	if c == nil {
		return false
	}
	switch m := msg.(type) {
	case messages.PrepareClaims:
		delete(c.asked, m.UID)
		c.pods.Ensure(ctx, m.UID, m.Pod)
	case messages.ReleaseClaims:
		c.asked[m.UID] = true
		c.pods.Remove(ctx, m.UID)
	case messages.ClaimDriversChanged:
		c.again(ctx)
	default:
		return c.pods.Receive(ctx, msg)
	}
	return true
}

// again retries all failures at once, also those of pods that are gone.
func (c *claims) again(ctx supervisors.Context) {
	removals := map[string]bool{}
	c.pods.Each(func(r reconcile.Report[*v1.Pod, struct{}]) {
		if r.Err != nil {
			removals[r.Key] = r.Remove
		}
	})
	for _, uid := range slices.Sorted(maps.Keys(removals)) {
		if removals[uid] {
			c.pods.Remove(ctx, uid)
		} else {
			c.pods.Touch(ctx, uid)
		}
	}
}

// sweep releases the claims of pods that are gone.
func (c *claims) sweep(ctx supervisors.Context, m messages.PodCgroupsWanted) {
	if c != nil {
		c.pods.Sweep(ctx, m.UIDs, m.Heard)
	}
}

// report sends a pod the result for its claims.
func (c *claims) report(ctx supervisors.Context, r reconcile.Report[*v1.Pod, struct{}]) {
	uid, asked := r.Key, c.asked[r.Key]
	to := messages.PodAddress(uid)
	if r.Remove && r.Err == nil {
		c.again(ctx) // others may wait for its claims
	}
	switch {
	case r.Remove && !asked:
	case r.Remove && r.Err == nil:
		delete(c.asked, uid)
		ctx.Tell(to, messages.ClaimsReleased{UID: uid})
	case r.Err == nil:
		ctx.Tell(to, messages.ClaimsPrepared{UID: uid})
	default:
		reason := messages.Reason{Code: messages.ReasonPrepareClaims, Message: messages.OneLine(r.Err), RetryAt: r.RetryAt,
			Cause: messages.CauseOf(r.Err)}
		if r.Remove {
			reason.Code = messages.ReasonReleaseClaims
		}
		ctx.Tell(to, messages.ClaimsFailed{UID: uid, Reason: reason, Release: r.Remove})
	}
}

// claimDriver prepares and releases the claims of pods.
type claimDriver struct{ manager ClaimManager }

func (d claimDriver) Ensure(ctx context.Context, op reconcile.Operation[*v1.Pod, struct{}]) (struct{}, error) {
	return struct{}{}, d.manager.Prepare(ctx, op.Desired)
}

func (d claimDriver) Remove(ctx context.Context, uid string) error {
	return d.manager.Unprepare(ctx, uid)
}

func (d claimDriver) Inventory(context.Context) ([]string, error) { return d.manager.Holders(), nil }
