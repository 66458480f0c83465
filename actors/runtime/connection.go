package runtime

import (
	"context"
	"fmt"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/actors/internal/metrics"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
	"github.com/playlet-dev/playlet/supervisors/backoff"
)

// link is the state of the connection.
type link struct {
	snapshot   Snapshot
	reportedAt time.Time // time of the last report of the state
	checking   bool
	again      bool // something failed during a check: repeat it
	timer      supervisors.Timer
	failures   int
	answered   time.Time     // when the runtime last passed a check
	away       time.Duration // total time without the runtime since this actor started
}

type (
	checkResult struct {
		version *runtimeapi.VersionResponse
		status  *runtimeapi.StatusResponse
		config  *runtimeapi.RuntimeConfigResponse // nil when not requested, or not supported
		err     error
	}
	checkDue struct{}
)

const (
	// checkTimeout is the deadline of a check, after which the runtime counts as hanging.
	checkTimeout = 10 * time.Second
	// statusPeriod is the interval between checks of a connected runtime.
	statusPeriod = 5 * time.Second
)

// checkRetry is the back-off of checks while the runtime is away. It is short, to notice the runtime's return at once; a refused
// connection costs nothing.
var checkRetry = backoff.Policy{First: 100 * time.Millisecond, Max: time.Second}

func (a *actor) check(ctx supervisors.Context) {
	if a.link.checking {
		a.link.again = true
		return
	}
	supervisors.Cancel(a.link.timer)
	a.link.checking = true
	first := a.phase != connected
	ctx.Do(supervisors.Work{Name: "Version, Status, RuntimeConfig", Timeout: checkTimeout, Run: func(ctx context.Context) any {
		version, err := a.opts.CRI.Version(ctx)
		if err != nil {
			return checkResult{err: err}
		}
		status, err := a.opts.CRI.Status(ctx, false)
		if err != nil || !first {
			return checkResult{version: version, status: status, err: err}
		}
		config, err := a.opts.CRI.RuntimeConfig(ctx) // constant until the runtime restarts
		outdated := cri.IsUnimplemented(err)
		if outdated {
			err = nil
		}
		metrics.RuntimeOutdated(outdated)
		return checkResult{version, status, config, err}
	}})
}

// checkPeriod returns the time to the next check of a healthy runtime. It is shorter without a network, because pods wait for
// it.
func (a *actor) checkPeriod() time.Duration {
	if a.link.snapshot.NetworkReady {
		return statusPeriod
	}
	return checkRetry.Max
}

func (a *actor) checkAfter(ctx supervisors.Context, d time.Duration) {
	a.link.timer = ctx.After(d, checkDue{})
}

// suspect starts a check if the error suggests that the runtime is away.
func (a *actor) suspect(ctx supervisors.Context, err error) {
	if a.phase == connected && cri.IsUnavailable(err) {
		a.check(ctx)
	}
}

func (a *actor) checkedConnecting(ctx supervisors.Context, m checkResult) {
	a.link.checking, a.link.again = false, false
	if reason := a.judge(m); reason != nil {
		a.link.failures++
		a.checkAfter(ctx, checkRetry.After(a.link.failures, 0))
		a.away(ctx, *reason)
		return
	}
	a.link.failures = 0
	s := &a.link.snapshot
	s.describe(m.version, m.status)
	a.checkAfter(ctx, a.checkPeriod())
	s.CgroupDriver = ""
	if linux := m.config.GetLinux(); linux != nil {
		s.CgroupDriver = strings.ToLower(linux.GetCgroupDriver().String())
	}
	if !a.link.answered.IsZero() {
		a.link.away += ctx.Now().Sub(a.link.answered)
	}
	a.link.answered = ctx.Now()
	s.Ready, s.Reason, s.Since, s.Stale = true, messages.Reason{}, ctx.Now(), ""
	ctx.Log().Info("the container runtime is ready",
		"endpoint", s.Endpoint, "name", s.Name, "version", s.Version, "api", s.APIVersion)
	a.logNetwork(ctx, true)
	a.publish()
	a.sendState(ctx)
	a.become(ctx, connected)
	a.reclaimEnded(ctx) // eviction's earlier request
}

func (a *actor) checkedConnected(ctx supervisors.Context, m checkResult) {
	again := a.link.again
	a.link.checking, a.link.again = false, false
	if reason := a.judge(m); reason != nil {
		a.link.failures = 1
		a.checkAfter(ctx, checkRetry.First)
		a.become(ctx, connecting)
		a.away(ctx, *reason)
		return
	}
	a.link.answered = ctx.Now()
	was := a.link.snapshot
	a.link.snapshot.describe(m.version, m.status)
	a.logNetwork(ctx, was.NetworkReady)
	a.publish()
	if now := a.link.snapshot; now.NetworkReady != was.NetworkReady || now.NetworkReason != was.NetworkReason {
		a.sendState(ctx)
	}
	a.judgeAudit(ctx)
	if again {
		a.check(ctx)
		return
	}
	a.checkAfter(ctx, a.checkPeriod())
}

// away records that the runtime is not usable. The start and each change of the reason are logged and reported, and the report
// is repeated from time to time.
func (a *actor) away(ctx supervisors.Context, reason messages.Reason) {
	s := &a.link.snapshot
	if s.Ready || s.Since.IsZero() {
		s.Since = ctx.Now()
	}
	changed := s.Ready || reason != s.Reason
	s.Ready, s.Reason = false, reason
	a.publish()
	if changed {
		ctx.Log().Warn("waiting for the container runtime", "endpoint", s.Endpoint, "reason", reason.Message)
	}
	if changed || ctx.Now().Sub(a.link.reportedAt) >= statusPeriod {
		a.sendState(ctx)
	}
}

func (a *actor) sendState(ctx supervisors.Context) {
	a.link.reportedAt = ctx.Now()
	s := a.link.snapshot
	state := messages.RuntimeStateChanged{
		Ready: s.Ready, Reason: s.Reason, Since: s.Since, NetworkReady: s.NetworkReady, NetworkReason: s.NetworkReason,
		Stale: s.Stale,
	}
	ctx.Tell(messages.Pods, state)
	if a.opts.Registered {
		ctx.Tell(messages.Registration, state)
	}
}

func (a *actor) publish() {
	s := &a.link.snapshot
	s.Answered, s.Away = a.link.answered, a.link.away
	a.opts.State.store(*s)
}

func (a *actor) logNetwork(ctx supervisors.Context, was bool) {
	switch s := a.link.snapshot; {
	case was && !s.NetworkReady:
		ctx.Log().Warn("the container runtime has no network for pods", "reason", s.NetworkReason)
	case !was && s.NetworkReady:
		ctx.Log().Info("the container runtime has a network for pods again")
	}
}

// judge returns the reason why the runtime is not usable; nil if it is.
func (a *actor) judge(m checkResult) *messages.Reason {
	at := "the container runtime at " + a.opts.Endpoint
	c := condition(m.status, runtimeapi.RuntimeReady)
	switch {
	case m.err != nil:
		at += " " + explain(m.err)
	case c == nil:
		at += " does not say whether it is ready"
	case !c.GetStatus():
		at += fmt.Sprintf(" (%s %s) says that it is not ready: %s", m.version.GetRuntimeName(), m.version.GetRuntimeVersion(),
			conditionText(c))
	default:
		return nil
	}
	return &messages.Reason{Code: messages.ReasonRuntimeUnavailable, Message: at}
}

// explain returns the meaning of an error of Version or Status, and the remedy. The text follows "the runtime at …".
func explain(err error) string {
	msg, why := cri.Message(err), messages.CauseOf(err).Code
	switch {
	case cri.IsPermanent(err):
		return "cannot be used: " + msg
	case cri.IsTimeout(err):
		return fmt.Sprintf("did not answer within %s: it hangs; its own log says why, and restarting it may help", checkTimeout)
	case why == messages.CauseSocketAbsent:
		return "cannot be reached: there is no socket; start the runtime (systemctl start containerd), " +
			"or name its socket by --container-runtime-endpoint"
	case why == messages.CauseNobodyListens:
		return "cannot be reached: nobody listens at the socket; start the runtime (systemctl start containerd)"
	case why == messages.CauseSocketForbidden:
		return "cannot be reached: permission denied; run as root"
	case why == messages.CauseStarting:
		return "is still starting: " + msg
	case cri.IsUnavailable(err):
		return "cannot be reached: " + msg
	default:
		return "answers with an error: " + msg
	}
}
