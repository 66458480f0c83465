package agent

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/playlet-dev/playlet/actors/events"
	"github.com/playlet-dev/playlet/actors/identity"
	"github.com/playlet-dev/playlet/actors/pods"
	"github.com/playlet-dev/playlet/actors/prober"
	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/actors/sources/submit"
	"github.com/playlet-dev/playlet/actors/stats"
	"github.com/playlet-dev/playlet/actors/stats/agentmetrics"
	"github.com/playlet-dev/playlet/cmd/playlet/agent/podlog"
	"github.com/playlet-dev/playlet/cmd/playlet/agent/spans"
	"github.com/playlet-dev/playlet/cmd/playlet/version"
	"github.com/playlet-dev/playlet/config"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
	"github.com/playlet-dev/playlet/supervisors/chaos"
)

// observatory has the means to observe the agent, and to inject faults. It outlives the actors that write to it.
type observatory struct {
	board    *pods.Board
	names    *podlog.Names // of pods, for the log
	events   *events.Log   // the last ones
	lateness *prober.Lateness
	figures  *stats.Collector
	metrics  *agentmetrics.Metrics
	tracing  *spans.Sender // nil where nothing is sampled
	chaos    *chaos.Engine // nil unless it is enabled
}

// newObservatory returns an observatory without figures, which depend on the runtime, and without chaos. The metrics include the
// expiry of the credentials.
func newObservatory(node *config.Node, names *podlog.Names, credentials *identity.State, log *slog.Logger) (*observatory, error) {
	o := &observatory{board: pods.NewBoard(), names: names, lateness: &prober.Lateness{}}
	o.metrics = agentmetrics.New(agentmetrics.Options{
		NodeName: node.NodeName, Board: o.board, Kubernetes: version.Kubernetes, Expiry: credentials.Expiry,
		Features: node.Features(),
	})
	var err error
	if o.tracing, err = spans.New(node, log); err != nil {
		return nil, err
	}
	if o.events, err = events.OpenLog(filepath.Join(stateDir(node), "events.json")); err != nil {
		log.Warn("the saved Events cannot be read; earlier Events are not shown", "error", err)
	}
	return o, nil
}

// attach gives it the running tree.
func (o *observatory) attach(system *supervisors.System) {
	if o.chaos != nil {
		o.chaos.Attach(system)
	}
	o.metrics.Register(system)
	o.tracing.Follow(system.Recorder())
	o.figures.Attach(system.Tell)
}

// close sends and stores the remaining records of an agent whose tree has stopped.
func (o *observatory) close(ctx context.Context, log *slog.Logger) {
	o.tracing.Close(ctx)
	if err := o.events.Save(); err != nil {
		log.Warn("recent Events are not saved to disk", "error", err)
	}
}

// endChaos ends all rules, and waits until the Events of their effects are stored. The system is nil if none was started.
func (o *observatory) endChaos(ctx context.Context, system *supervisors.System, log *slog.Logger) {
	if o.chaos == nil {
		return
	}
	o.chaos.Close()
	if system == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	// The mailbox is in order: the answer follows the handling of all earlier messages.
	if _, err := system.Ask(ctx, messages.Events, messages.GetInspection{}); err != nil {
		log.Warn("the last Events of chaos rules may not be saved", "error", err)
	}
}

// chaosOptions give the engine the names of pods, and the node's Events: a standalone node keeps them for "playlet events".
func chaosOptions(node *config.Node, board *pods.Board, tell func(messages.Address, any)) chaos.Options {
	return chaos.Options{
		Pod: func(uid string) (chaos.Pod, bool) {
			now := board.Now()
			for _, of := range slices.Concat(now.Pods, now.Over) {
				if p := of.Pod; string(p.UID) == uid {
					manifest := submit.NameInManifest(p)
					return chaos.Pod{Namespace: p.Namespace, Name: p.Name, Manifest: manifest, Labels: p.Labels}, true
				}
			}
			return chaos.Pod{}, false
		},
		Report: func(text string) {
			tell(messages.Events, messages.NodeEvent(node.NodeName, v1.EventTypeWarning, messages.EventChaos, text, time.Now()))
		},
	}
}

// figureOptions returns the options of the process-wide collector of figures.
func figureOptions(node *config.Node, board *pods.Board, r *containerRuntime, c *cluster) stats.Options {
	return stats.Options{
		Persistent: c.usage(node.RootDir), NodeName: node.NodeName, Board: board, CRI: r.client, RootDir: node.RootDir,
		PodLogsDir: node.Kubelet.PodLogsDir, Kubepods: kubepods(node.Kubelet, r.state),
		System:   func() map[string]string { return systemCgroups(node) },
		UsageAge: node.Kubelet.VolumeStatsAggPeriod.Duration,
	}
}

// process returns the resource usage of this process.
func process() api.Process {
	out := api.Process{Since: began}
	var used unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &used) == nil {
		out.CPU = time.Duration(used.Utime.Nano() + used.Stime.Nano())
	}
	if self, err := procfs.Self(); err == nil {
		stat, _ := self.Stat()                       // 0 is not known
		out.Resident = uint64(stat.ResidentMemory()) //nolint:gosec // never negative
	}
	return out
}

// began is when the process did.
var began = time.Now()

// probeWords are the kubelet's, for the kinds and results of probes.
var probeWords = map[string]string{
	string(messages.Liveness): "Liveness", string(messages.Readiness): "Readiness", string(messages.Startup): "Startup",
	"success": "successful", "warning": "successful", "failure": "failed", "unknown": "unknown",
}

// probed translates the runs of probes for metrics: no actor's package knows another's.
func probed(metrics *agentmetrics.Metrics) func(prober.Run) {
	return func(r prober.Run) {
		metrics.Probed(agentmetrics.Probe{
			Type: probeWords[string(r.Kind)], Result: probeWords[r.Result], UID: r.Pod.UID, Namespace: r.Pod.Namespace,
			Pod: r.Pod.Name, Container: r.Container, Took: r.Took,
		})
	}
}

// recordRuntimeCall writes a call of the container runtime to the flight recorder. The runtime's error text may contain
// anything, so only its code is recorded.
func recordRuntimeCall(ctx context.Context, o cri.Observation) {
	said := o.Object
	if o.Err != nil {
		said += " failed=" + status.Code(o.Err).String()
	}
	supervisors.RecordCall(ctx, supervisors.Call{
		To: messages.Runtime, Name: o.Call, Digest: said, Asked: o.Asked, Began: o.Began, Took: o.Took,
	})
}

// recorded returns a constructor of client configurations that record their requests in the flight recorder.
func recorded(of func() *rest.Config) func() *rest.Config {
	return func() *rest.Config {
		c := of()
		c.Wrap(func(next http.RoundTripper) http.RoundTripper { return recordingTransport{next} })
		return c
	}
}

type recordingTransport struct{ next http.RoundTripper }

func (t recordingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	began := time.Now()
	resp, err := t.next.RoundTrip(r)
	call := supervisors.Call{
		To: messages.APIServer, Name: r.Method, Digest: r.URL.Path, Asked: began, Began: began, Took: time.Since(began),
	}
	switch {
	case err != nil:
		call.Digest += " failed"
	case resp.StatusCode >= http.StatusBadRequest:
		call.Digest += fmt.Sprintf(" failed=%d", resp.StatusCode)
	}
	supervisors.RecordCall(r.Context(), call)
	return resp, err
}

// WrappedRoundTripper is the one below, for client-go.
func (t recordingTransport) WrappedRoundTripper() http.RoundTripper { return t.next }

// dumpOnSignal writes the flight recorder to its file at each SIGUSR1, until ctx ends.
func dumpOnSignal(ctx context.Context, recorder *supervisors.Recorder, file string, log *slog.Logger) {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGUSR1)
	defer signal.Stop(asked)
	for {
		select {
		case <-asked:
		case <-ctx.Done():
			return
		}
		err := os.WriteFile(file+".new", []byte(recorder.Dump("")), 0o600)
		if err == nil {
			err = os.Rename(file+".new", file)
		}
		if err != nil {
			log.Warn("the flight recorder cannot be written", "error", err)
			continue
		}
		size := recorder.Size()
		log.Info("flight recorder written", "file", file, "entries", size.Entries, "bytes", size.Bytes)
	}
}
