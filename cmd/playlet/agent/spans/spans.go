// Package spans exports the flight recorder to an OpenTelemetry collector.
package spans

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"k8s.io/utils/ptr"

	"github.com/playlet-dev/playlet/cmd/playlet/version"
	"github.com/playlet-dev/playlet/config"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
	recovery "github.com/playlet-dev/playlet/supervisors/guard"
)

const (
	defaultOTLP = "localhost:4317" // of TracingConfiguration, without TLS
	spansEvery  = 200 * time.Millisecond
	// maxTraced is of how many pods it is known at most that their trace has begun.
	maxTraced = 4096
)

// Sender exports the flight recorder to an OpenTelemetry collector: one trace per pod, one trace per flow without a pod, one
// span per entry, with its cause as parent. All spans of a pod are below one that lasts from its first entry until it is ready.
// A flow that was started by another flow's message is below the pod's span, too, with its cause as an attribute.
//
// otelgrpc makes the spans of the runtime's calls. Their context is propagated with the call, so the runtime's spans are below
// them. All methods may be called on nil, which traces nothing.
type Sender struct {
	log      *slog.Logger
	spans    sdk.SpanProcessor
	provider *sdk.TracerProvider // for otelgrpc
	resource *resource.Resource
	ratio    sdk.Sampler
	salt     [16]byte // so that no two agents, and no two lives of one, have traces in common
	begun    map[string]time.Time
	end      context.CancelFunc
	ended    sync.WaitGroup
}

// New reads "tracing" of the configuration; without a sampling rate nothing is traced, as a pod's start has no parent that
// could be sampled. It does not connect.
func New(node *config.Node, log *slog.Logger) (*Sender, error) {
	c := node.Kubelet.Tracing
	switch {
	case c == nil:
		return nil, nil
	case ptr.Deref(c.SamplingRatePerMillion, 0) == 0:
		log.Warn("nothing is traced: tracing.samplingRatePerMillion is 0")
		return nil, nil
	}
	endpoint, once := ptr.Deref(c.Endpoint, defaultOTLP), sync.Once{}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { // a collector that is away is tried again with the next spans
		once.Do(func() {
			log.Warn("spans cannot be sent; further failures are not logged", "endpoint", endpoint, "error", err)
		})
	}))
	own := resource.NewSchemaless(attribute.String("service.name", "playlet"),
		attribute.String("service.version", version.Playlet()), attribute.String("k8s.node.name", node.NodeName))
	all, err := resource.Merge(resource.Environment(), own)
	if err != nil {
		return nil, fmt.Errorf("tracing: OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	exporter, err := otlptracegrpc.New(context.Background(), otlptracegrpc.WithInsecure(),
		otlptracegrpc.WithEndpoint(endpoint))
	if err != nil {
		return nil, fmt.Errorf("tracing.endpoint: %w", err)
	}
	t := &Sender{log: log, spans: sdk.NewBatchSpanProcessor(exporter), resource: all, begun: map[string]time.Time{},
		ratio: sdk.TraceIDRatioBased(float64(*c.SamplingRatePerMillion) / 1e6)}
	_, _ = rand.Read(t.salt[:]) // it never fails
	t.provider = sdk.NewTracerProvider(sdk.WithSpanProcessor(t.spans), sdk.WithResource(all),
		sdk.WithSampler(sdk.ParentBased(sdk.NeverSample()))) // a call that belongs to no flow has no parent
	return t, nil
}

// DialOptions have the calls of a connection carry the context of their work.
func (t *Sender) DialOptions() []grpc.DialOption {
	if t == nil {
		return nil
	}
	return []grpc.DialOption{grpc.WithStatsHandler(otelgrpc.NewClientHandler(otelgrpc.WithTracerProvider(t.provider),
		otelgrpc.WithPropagators(propagation.TraceContext{})))}
}

// WorkContext is for supervisors.Options.
func (t *Sender) WorkContext() func(context.Context, supervisors.Flow, uint64) context.Context {
	if t == nil {
		return nil
	}
	return func(ctx context.Context, f supervisors.Flow, id uint64) context.Context {
		return trace.ContextWithRemoteSpanContext(ctx, t.identity(f, SpanID(id)))
	}
}

// Follow exports entries recorded from now on, until Close.
func (t *Sender) Follow(recorder *supervisors.Recorder) {
	if t == nil {
		return
	}
	ctx, end := context.WithCancel(context.Background())
	t.end = end
	t.ended.Go(func() {
		recovery.GoOn(ctx, t.log, "sending spans", func(ctx context.Context) { t.send(ctx, recorder) })
	})
}

func (t *Sender) send(ctx context.Context, recorder *supervisors.Recorder) {
	for after := uint64(0); recorder.Wait(ctx, after) == nil; {
		entries := recorder.Select(supervisors.Query{After: after})
		for i := range entries {
			after = max(after, entries[i].Seq)
			t.span(&entries[i])
		}
		select {
		case <-time.After(spansEvery):
		case <-ctx.Done():
		}
	}
}

// Close exports the remaining entries, until ctx ends.
func (t *Sender) Close(ctx context.Context) {
	if t == nil {
		return
	}
	if t.end != nil {
		t.end()
		t.ended.Wait()
	}
	if err := recovery.Call(t.log, "the last spans", func() error { return t.provider.Shutdown(ctx) }); err != nil {
		t.log.Warn("spans are lost", "error", err)
	}
}

// span sends the span of one entry.
func (t *Sender) span(e *supervisors.Entry) {
	began := t.beginning(e)
	if e.Kind == supervisors.OfCall && e.To == messages.Runtime {
		return // otelgrpc's
	}
	var parent trace.SpanID
	switch first := e.Flow.ID == e.ID || e.Cause == 0; {
	case !first:
		parent = SpanID(e.Cause)
	case e.Flow.Pod != "":
		parent = t.root(e.Flow.Pod)
	}
	s := t.newSpan(e, e.Message, SpanID(e.ID), parent, e.Sent)
	s.Attributes = append(s.Attributes,
		attribute.String("playlet.from", e.From.String()), attribute.String("playlet.to", e.To.String()),
		attribute.Int64("playlet.id", int64(e.ID)),       //nolint:gosec // counted from 1
		attribute.Int64("playlet.cause", int64(e.Cause)), //nolint:gosec // the same
		attribute.String("playlet.kind", string(e.Kind)), attribute.String("playlet.digest", e.Digest))
	none := attribute.StringValue("")
	s.Attributes = slices.DeleteFunc(s.Attributes, func(a attribute.KeyValue) bool { return a.Value == none })
	s.Events = []sdk.Event{{Name: "began", Time: e.Began}}
	if e.Panic != "" {
		s.Status = sdk.Status{Code: codes.Error, Description: e.Panic}
	}
	t.spans.OnEnd(s.Snapshot())
	if e.Message == "PodStatusChanged" && !began.IsZero() && slices.Contains(strings.Fields(e.Digest), supervisors.Ready) {
		t.begun[e.Flow.Pod] = time.Time{} // once
		t.spans.OnEnd(t.newSpan(e, "pod start", t.root(e.Flow.Pod), trace.SpanID{}, began).Snapshot())
	}
}

// newSpan is a span in the trace of an entry, which ends with that. The library's own way would give it an ID by chance.
func (t *Sender) newSpan(e *supervisors.Entry, name string, id, parent trace.SpanID, began time.Time) tracetest.SpanStub {
	return tracetest.SpanStub{
		Name: name, SpanContext: t.identity(e.Flow, id), Parent: t.identity(e.Flow, parent), SpanKind: trace.SpanKindInternal,
		StartTime: began, EndTime: e.Ended(), Attributes: []attribute.KeyValue{attribute.String("k8s.pod.uid", e.Flow.Pod)},
		Resource: t.resource, InstrumentationScope: instrumentation.Scope{Name: "github.com/playlet-dev/playlet"},
	}
}

// beginning returns the time of the first entry of the entry's pod. It is zero once the pod is ready, and for flows without a
// pod.
func (t *Sender) beginning(e *supervisors.Entry) time.Time {
	began, known := t.begun[e.Flow.Pod]
	if !known && e.Flow.Pod != "" {
		if len(t.begun) >= maxTraced {
			clear(t.begun)
		}
		began = e.Sent
		t.begun[e.Flow.Pod] = began
	}
	return began
}

// identity is the span of that ID in the trace of a flow: a share of the pods, and of the other flows, is sampled.
func (t *Sender) identity(f supervisors.Flow, id trace.SpanID) trace.SpanContext {
	c := trace.SpanContextConfig{TraceID: t.traceID(f), SpanID: id}
	if t.ratio.ShouldSample(sdk.SamplingParameters{TraceID: c.TraceID}).Decision == sdk.RecordAndSample {
		c.TraceFlags = trace.FlagsSampled
	}
	return trace.NewSpanContext(c)
}

// traceID is the trace of a pod, or of a flow that is no pod's.
func (t *Sender) traceID(f supervisors.Flow) trace.TraceID {
	story := f.Pod
	if story == "" {
		story = strconv.FormatUint(f.ID, 10)
	}
	sum := sha256.Sum256(append(t.salt[:], story...))
	return trace.TraceID(sum[:16])
}

func (t *Sender) root(pod string) trace.SpanID {
	sum := sha256.Sum256(append(t.salt[:], pod...))
	return trace.SpanID(sum[16:24])
}

// SpanID is the span of an entry with this ID.
func SpanID(id uint64) (s trace.SpanID) {
	binary.BigEndian.PutUint64(s[:], id)
	return s
}
