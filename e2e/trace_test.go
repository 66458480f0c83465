//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	spans "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"

	"github.com/playlet-dev/playlet/e2e/stack"
)

// otlp is an OpenTelemetry collector.
type otlp struct {
	collector.UnimplementedTraceServiceServer
	mu  sync.Mutex
	got map[string]map[string]*spans.Span // by service and span ID
}

func (o *otlp) Export(_ context.Context, q *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range q.GetResourceSpans() {
		service := ""
		for _, a := range r.GetResource().GetAttributes() {
			if a.GetKey() == "service.name" {
				service = a.GetValue().GetStringValue()
			}
		}
		if o.got[service] == nil {
			o.got[service] = map[string]*spans.Span{}
		}
		for _, scope := range r.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				o.got[service][hex.EncodeToString(s.GetSpanId())] = s
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// of are the spans of a service until now.
func (o *otlp) of(service string) map[string]*spans.Span {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := map[string]*spans.Span{}
	for id, s := range o.got[service] {
		out[id] = s
	}
	return out
}

// traceLine is one line of the output of "playlet trace -o json".
type traceLine struct {
	ID, Cause uint64
	Flow      struct {
		ID  uint64
		Pod string
	}
	Kind        string
	Message     string
	Sent, Began time.Time
	Took        time.Duration
}

// inOrder returns a story in the order of transcript and diagram: by the beginnings, but work follows the message that caused it,
// and a call its work.
func inOrder(story []traceLine) (out []traceLine) {
	here, below, roots := map[uint64]bool{}, map[uint64][]traceLine{}, []traceLine(nil)
	for _, e := range story {
		here[e.ID] = true
	}
	for _, e := range story {
		if (e.Kind == "work" || e.Kind == "call") && here[e.Cause] {
			below[e.Cause] = append(below[e.Cause], e)
		} else {
			roots = append(roots, e)
		}
	}
	var add func([]traceLine)
	add = func(list []traceLine) {
		slices.SortStableFunc(list, func(x, y traceLine) int { return x.Began.Compare(y.Began) })
		for _, e := range list {
			out = append(out, e)
			add(below[e.ID])
		}
	}
	add(roots)
	return out
}

// rounded is a duration as transcript and diagram have it: with three digits.
func rounded(d time.Duration) string {
	unit := time.Duration(1)
	for d/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit).String()
}

// tells checks a text, by lines, against a story: each entry's line comes after the previous entry's. Later entries may be in
// between.
func tells(t *testing.T, what, text string, story []traceLine, line func(traceLine) *regexp.Regexp) {
	t.Helper()
	lines := strings.Split(text, "\n")
	at := 0
	for _, e := range story {
		pattern := line(e)
		i := slices.IndexFunc(lines[at:], pattern.MatchString)
		if i < 0 {
			t.Errorf("%s: after line %d nothing is like %s", what, at, pattern)
			return
		}
		at += i + 1
	}
}

// The transcript, the diagram and the spans of a pod's start agree, include containerd's spans, and the length of its critical
// path is the start's duration as measured outside.
func TestThePathOfAStart(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	endpoint, at, server := l.Addr().String(), &otlp{got: map[string]map[string]*spans.Span{}}, grpc.NewServer()
	collector.RegisterTraceServiceServer(server, at)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	s := stack.Start(t, stack.Options{RuntimeEnv: []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL=grpc",
		"OTEL_SERVICE_NAME=containerd", "OTEL_BSP_SCHEDULE_DELAY=200"}})
	a := agentWith(t, s, func(a *stack.Agent) {
		a.Config["tracing"] = map[string]any{"endpoint": endpoint, "samplingRatePerMillion": 1_000_000}
	})
	settled(t, a)
	socket := "--admin-socket=" + a.AdminSocket

	// On a busy machine the outside sees a start later than it is. One of several starts is seen in time.
	var name string
	for try := range 5 {
		name = fmt.Sprintf("web%d", try)
		observed, path := pathOf(t, s, a, name)
		var sum time.Duration
		named := map[string]bool{}
		for _, p := range path.Segments {
			sum += p.Took
			named[p.Kind+" "+p.Name] = true
		}
		if sum != path.Took {
			t.Errorf("the path adds up to %s, says %s", sum, path.Took)
		}
		for _, want := range []string{"work ReadManifests", "call RunPodSandbox", "call StartContainer"} {
			if !named[want] {
				t.Errorf("no %s is on the path", want)
			}
		}
		if (observed - sum).Abs() <= observed/20 {
			break
		}
		if try == 4 {
			t.Errorf("the path takes %s, and the start that is seen took %s", sum, observed)
			break
		}
		must(t, a.Remove(name+".yaml"))
	}

	text, _, _ := playlet(t, "trace", name, socket, "-o", "json")
	var story []traceLine
	for line := range strings.Lines(text) {
		var e traceLine
		must(t, json.Unmarshal([]byte(line), &e))
		story = append(story, e)
	}
	transcript, _, _ := playlet(t, "trace", name, socket)
	diagram, _, _ := playlet(t, "trace", name, socket, "-o", "mermaid")
	if n := strings.Count(transcript, "\n"); n < len(story)+2 {
		t.Errorf("the transcript has %d lines, of %d entries", n, len(story))
	}
	story = inOrder(story)
	shown := func(e traceLine) string { return regexp.QuoteMeta(strings.TrimSuffix(e.Message, " "+e.Flow.Pod)) }
	tells(t, "the transcript", transcript, story, func(e traceLine) *regexp.Regexp {
		return regexp.MustCompile(fmt.Sprintf(`^ *\+[0-9.]+s +%s +%s  .* %s\b`, regexp.QuoteMeta(rounded(max(e.Began.Sub(e.Sent), 0))),
			regexp.QuoteMeta(rounded(e.Took)), shown(e)))
	})
	// An arrow has no duration; a call's duration is on its return arrow.
	tells(t, "the diagram", strings.ReplaceAll(diagram, "\n    a", "\na"), story, func(e traceLine) *regexp.Regexp {
		if e.Kind == "work" {
			return regexp.MustCompile(fmt.Sprintf(`Note over a[0-9]+: %s\b.*, %s$`, shown(e), regexp.QuoteMeta(rounded(e.Took))))
		}
		return regexp.MustCompile(fmt.Sprintf(`(->>|--\))a[0-9]+: %s\b`, shown(e)))
	})
	for _, e := range story {
		if back := fmt.Sprintf(": %s\n", rounded(e.Took)); e.Kind == "call" && !strings.Contains(diagram, back) {
			t.Errorf("in the diagram no call takes as long as %s, %s", e.Message, rounded(e.Took))
		}
	}
	// Spans come a while later, and entries went on.
	await(t, func() error {
		ours := at.of("playlet")
		var root *spans.Span
		for _, s := range ours {
			if s.GetName() == "pod start" && slices.ContainsFunc(story, func(e traceLine) bool {
				return e.Flow.Pod != "" && slices.Equal(s.GetTraceId(), ours[fmt.Sprintf("%016x", e.ID)].GetTraceId())
			}) {
				root = s
			}
		}
		if root == nil {
			return fmt.Errorf("no root among %d spans", len(ours))
		}
		for _, e := range story {
			if e.Flow.Pod == "" {
				continue
			}
			span := ours[fmt.Sprintf("%016x", e.ID)]
			if e.Kind == "call" {
				for _, s := range ours {
					if hex.EncodeToString(s.GetParentSpanId()) == fmt.Sprintf("%016x", e.Cause) && strings.HasSuffix(s.GetName(), "Service/"+e.Message) {
						span = s
					}
				}
			}
			if span == nil || !slices.Equal(span.GetTraceId(), root.GetTraceId()) || !strings.HasSuffix(span.GetName(), e.Message) {
				return fmt.Errorf("the span of %+v is %v", e, span)
			}
			parent := ours[hex.EncodeToString(span.GetParentSpanId())]
			want := fmt.Sprintf("%016x", e.Cause)
			if e.Flow.ID == e.ID || e.Cause == 0 {
				want = hex.EncodeToString(root.GetSpanId())
			}
			switch began, ended := e.Sent.UnixNano(), e.Began.Add(e.Took).UnixNano(); {
			case parent == nil || hex.EncodeToString(span.GetParentSpanId()) != want:
				return fmt.Errorf("%s is below %x, its cause is %s", span.GetName(), span.GetParentSpanId(), want)
			case e.Kind != "call" && (int64(span.GetStartTimeUnixNano()) != began || int64(span.GetEndTimeUnixNano()) != ended):
				return fmt.Errorf("%s lasts from %d to %d, its entry from %d to %d", span.GetName(), span.GetStartTimeUnixNano(),
					span.GetEndTimeUnixNano(), began, ended)
			case e.Kind == "call" && (span.GetStartTimeUnixNano() < parent.GetStartTimeUnixNano() ||
				span.GetEndTimeUnixNano() > parent.GetEndTimeUnixNano()):
				return fmt.Errorf("%s is not within its work, %s", span.GetName(), parent.GetName())
			}
		}
		for _, s := range at.of("containerd") {
			if parent := ours[hex.EncodeToString(s.GetParentSpanId())]; slices.Equal(s.GetTraceId(), root.GetTraceId()) &&
				parent != nil && strings.HasSuffix(parent.GetName(), "/RunPodSandbox") {
				t.Logf("%d spans of the agent, %d of containerd; its %s is below ours of %s", len(ours), len(at.of("containerd")), s.GetName(), parent.GetName())
				return nil
			}
		}
		return fmt.Errorf("none of containerd's %d spans is below the agent's RunPodSandbox", len(at.of("containerd")))
	})
	must(t, a.Remove(name+".yaml"))
	done(t, s, a)
}

// criticalPath is the answer of "trace --critical-path".
type criticalPath struct {
	Took     time.Duration
	Segments []struct {
		Kind, Name string
		Took       time.Duration
	}
}

// pathOf starts a pod and returns the time until it is seen to be ready, and its critical path.
func pathOf(t *testing.T, s *stack.Stack, a *stack.Agent, name string) (observed time.Duration, path criticalPath) {
	t.Helper()
	socket := "--admin-socket=" + a.AdminSocket
	ready, watch := make(chan time.Time, 1), exec.CommandContext(t.Context(), program(), "pods", "-w", socket)
	out, err := watch.StdoutPipe()
	must(t, err)
	must(t, watch.Start())
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if strings.Contains(lines.Text(), onNode(name)) && strings.Contains(lines.Text(), "1/1") {
				ready <- time.Now()
				break
			}
		}
		_ = watch.Process.Kill()
		_ = watch.Wait()
	}()
	began := time.Now()
	must(t, a.Write(name+".yaml", manifest(s, name, "containers: [{name: c, image: HELLO, args: [sleep]}]")))
	select {
	case now := <-ready:
		observed = now.Sub(began)
	case <-time.After(waitLimit):
		t.Fatal("the pod does not become ready")
	}
	text, _, _ := playlet(t, "trace", name, socket, "--critical-path", "-o", "json")
	must(t, json.Unmarshal([]byte(text), &path))
	table, _, _ := playlet(t, "trace", name, socket, "--critical-path")
	t.Logf("seen from outside: %s; critical path: %s\n%s", observed, path.Took, table)
	return observed, path
}
