package prober

import (
	"context"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/messages"
)

// result is the application's result of one run.
type result string

const (
	unknown result = "unknown" // nothing: it could not be asked
	success result = "success"
	warning result = "warning" // success with a message
	failure result = "failure"
)

// outcome is one run's.
type outcome struct {
	result  result
	message string
	// timedOut is true if the run used its whole time, whatever its result.
	timedOut bool
}

// job is one run of a probe, with all that it needs: it shares nothing with the state.
type job struct {
	kind      messages.ProbeKind
	id        string // of the container
	container *v1.Container
	spec      *v1.Probe
	ips       []string
	order     int64
	timeout   time.Duration
}

func (p *probe) job() job {
	return job{
		kind: p.kind, id: p.container.id, container: p.container.spec, spec: p.spec, ips: p.pod.desired.IPs,
		order:   p.pod.desired.Order,
		timeout: seconds(p.spec.TimeoutSeconds, 1),
	}
}

// actions are the kinds of probes: a kind is one file and one line.
var actions = []struct {
	has  func(*v1.Probe) bool
	pool pool
	act  func(context.Context, Options, job) outcome
}{
	{func(p *v1.Probe) bool { return p.Exec != nil }, commands, execProbe},
	{func(p *v1.Probe) bool { return p.HTTPGet != nil }, network, timed(httpProbe)},
	{func(p *v1.Probe) bool { return p.TCPSocket != nil }, network, timed(tcpProbe)},
	{func(p *v1.Probe) bool { return p.GRPC != nil }, network, timed(grpcProbe)},
}

func poolOf(spec *v1.Probe) pool {
	for _, a := range actions {
		if a.has(spec) {
			return a.pool
		}
	}
	return network
}

func (j job) act(ctx context.Context, opts Options) outcome {
	for _, a := range actions {
		if a.has(j.spec) {
			return a.act(ctx, opts, j)
		}
	}
	return outcome{result: unknown, message: "the probe has no action"}
}

// overslept is by how much more than its timeout a probe may last before it is ours that was late, and not the application:
// the agent had no processor, or the machine slept. A connection that is closed may take its second of lingering (see
// endpoint.Dialer), and a redirect's another: that lateness is the application's.
const overslept = 5 * time.Second

// timed gives an action its timeout, from now.
func timed(act func(context.Context, Options, job) outcome) func(context.Context, Options, job) outcome {
	return func(ctx context.Context, opts Options, j job) outcome {
		began := time.Now()
		bound, cancel := context.WithTimeout(ctx, j.timeout)
		defer cancel()
		o := act(bound, opts, j)
		o.timedOut = bound.Err() != nil && ctx.Err() == nil
		switch {
		case ctx.Err() != nil:
			return outcome{result: unknown, message: "the probe was cut off by the agent itself"}
		case o.result == failure && time.Since(began) > j.timeout+overslept:
			o.result, o.message = unknown, "the agent was held up while it probed: "+o.message
		}
		return o
	}
}

// maxMessage is the maximum number of bytes kept of an application's output.
const maxMessage = 1 << 10

// text joins the parts of an application's output, up to maxMessage.
func text(parts ...string) string {
	var all strings.Builder
	for _, s := range parts {
		all.WriteString(s[:min(len(s), maxMessage-all.Len())])
	}
	return strings.ToValidUTF8(strings.TrimSpace(all.String()), "")
}

// head is the beginning of an output, without a copy of the rest, which may be megabytes.
func head(b []byte) string { return string(b[:min(len(b), maxMessage)]) }
