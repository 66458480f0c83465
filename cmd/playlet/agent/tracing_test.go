package agent

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cmd/playlet/agent/spans"
	"github.com/playlet-dev/playlet/cri/sim"
	"github.com/playlet-dev/playlet/supervisors"
)

// receiver is an OTLP collector.
type receiver struct {
	collector.UnimplementedTraceServiceServer
	mu  sync.Mutex
	got []*otlp.Span
}

func (r *receiver) Export(_ context.Context, q *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, resource := range q.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			r.got = append(r.got, scope.GetSpans()...)
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// collect starts a collector, and gives its address.
func collect(t *testing.T) (*receiver, string) {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r, server := &receiver{}, grpc.NewServer()
	collector.RegisterTraceServiceServer(server, r)
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	t.Cleanup(func() { server.Stop(); <-done })
	return r, l.Addr().String()
}

// The start of a pod is one trace, and so is each flow that is no pod's: each span is below the one that caused it, and calls
// of the runtime below their work. With a rate of nothing, nothing is sent.
func TestSpansOfAStart(t *testing.T) {
	for _, rate := range []int32{1_000_000, 0} {
		at, endpoint := collect(t)
		r := newRig(t, sim.Options{})
		r.flags = append(r.flags, "--config="+r.file("config.yaml", fmt.Sprintf("apiVersion: kubelet.config.k8s.io/v1beta1\n"+
			"kind: KubeletConfiguration\ntracing: {endpoint: %q, samplingRatePerMillion: %d}\n", endpoint, rate)))
		r.write("web.yaml", manifest("web", "Always", nil, []string{"main app:1"}))
		r.start(nil)
		r.untilPrinted([]string{"pods"}, "web-node   1/1     Running")
		var story []supervisors.Entry
		if err := api.NewClient(r.agent.node.AdminSocket).Trace(t.Context(), api.TraceOptions{Pod: "web-node"}, func(got *api.Trace) error {
			story = got.Entries
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		r.stop() // sends the remaining spans
		if rate == 0 {
			if len(at.got) > 0 {
				t.Errorf("%d spans were sent", len(at.got))
			}
			continue
		}
		byID, names := map[string]*otlp.Span{}, map[string]*otlp.Span{}
		for _, s := range at.got {
			byID[string(s.GetSpanId())], names[s.GetName()] = s, s
		}
		root := names["pod start"]
		if root == nil || len(root.GetParentSpanId()) != 0 {
			t.Fatalf("the root is %v, of %d spans", root, len(at.got))
		}
		roots, others := map[string]string{}, 0
		for _, s := range at.got {
			of := string(s.GetTraceId())
			if parent := byID[string(s.GetParentSpanId())]; parent != nil && string(parent.GetTraceId()) == of {
				continue
			}
			if of != string(root.GetTraceId()) {
				others++
			}
			if len(s.GetParentSpanId()) != 0 || roots[of] != "" {
				t.Errorf("%s is below %x, which is not in its trace %x with the root %q", s.GetName(), s.GetParentSpanId(), of, roots[of])
			}
			roots[of] = s.GetName()
		}
		if others == 0 || !slices.Contains(slices.Collect(maps.Values(roots)), "Started") {
			t.Errorf("no flow of the node was sent: %v", roots)
		}
		for _, e := range story {
			id := spans.SpanID(e.ID)
			s, name := byID[string(id[:])], e.Message
			if e.Kind == supervisors.OfCall {
				if s = names["runtime.v1.RuntimeService/"+e.Message]; s == nil {
					s = names["runtime.v1.ImageService/"+e.Message]
				}
				cause := spans.SpanID(e.Cause)
				name = s.GetName()
				if slices.Contains([]string{"RunPodSandbox", "CreateContainer", "StartContainer"}, e.Message) && string(s.GetParentSpanId()) != string(cause[:]) {
					t.Errorf("%v is below %x", e, s.GetParentSpanId())
				}
			}
			if e.Flow.Pod != "" && e.Kind != supervisors.OfCall && s != nil && string(s.GetTraceId()) != string(root.GetTraceId()) {
				t.Errorf("%v is in trace %x", e, s.GetTraceId())
			}
			if e.Flow.Pod != "" && (s == nil || s.GetName() != name) {
				t.Errorf("the span of %v is %v", e, s)
			}
			if cause := spans.SpanID(e.Cause); s != nil && e.Kind != supervisors.OfCall && e.Flow.ID != e.ID && string(s.GetParentSpanId()) != string(cause[:]) {
				t.Errorf("%v is below %x", e, s.GetParentSpanId())
			}
			if s != nil && e.Kind != supervisors.OfCall && time.Duration(s.GetEndTimeUnixNano()-s.GetStartTimeUnixNano()) != e.Ended().Sub(e.Sent) {
				t.Errorf("%v lasts from %d to %d", e, s.GetStartTimeUnixNano(), s.GetEndTimeUnixNano())
			}
		}
	}
}
