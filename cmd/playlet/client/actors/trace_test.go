package actors

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cmd/playlet/client/fake"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// hasTrace is a pod that has become ready in 100 ms.
func hasTrace(f *fake.Agent) {
	f.HasActors()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "u1"}}
	f.Has(&api.Pod{Pod: pod})
	said := func(id, cause uint64, kind supervisors.EntryKind, from, to messages.Address, what, digest string, sent, ended int) supervisors.Entry {
		at := func(ms int) time.Time { return fake.Noon.Add(time.Duration(ms) * time.Millisecond) }
		return supervisors.Entry{Seq: id, ID: id, Cause: cause, Flow: supervisors.Flow{ID: 1, Pod: "u1"}, Kind: kind, From: from, To: to,
			Message: what, Digest: digest, Sent: at(sent), Began: at(sent), Took: time.Duration(ended-sent) * time.Millisecond}
	}
	f.Mu.Lock()
	defer f.Mu.Unlock()
	f.Trace = api.Trace{Pod: &api.Ref{Namespace: "default", Name: "web", UID: "u1"}, Entries: []supervisors.Entry{
		said(1, 0, "", "pods", "pods/u1", "Started", "", 0, 10),
		said(2, 1, "work", "pods/u1", "pods/u1", "RunPodSandbox", "", 10, 80),
		said(3, 2, "call", "pods/u1", "runtime", "RunPodSandbox", "default/web \x1b[31m", 15, 75),
		said(4, 2, "", "pods/u1", "pods", "PodStatusChanged", "Running ready", 80, 100),
	}}
}

func TestTraceOfAPod(t *testing.T) {
	f := fake.Start(t, newTraceCommand)
	hasTrace(f)
	for _, arg := range []string{"web", "pod/web", "default/web", "pods/default/web", "u1"} {
		out, notes, code := f.Command(t, "trace", arg)
		want := `      TIME   QUEUED     TOOK  FROM → TO  MESSAGE
   +0.000s       0s     10ms  pods → pod  Started
   +0.010s       0s     70ms    pod  work RunPodSandbox
   +0.015s       0s     60ms      pod → CRI  RunPodSandbox  default/web  [31m
   +0.080s       0s     20ms  pod → pods  PodStatusChanged  Running ready
`
		first, rest, _ := strings.Cut(out, "\n")
		if rest != want || code != 0 || notes != "" || !strings.HasPrefix(first, "pod is default/web, UID u1; times are counted from 20") {
			t.Errorf("%s: %d %s\n%s\nwant\n%s", arg, code, notes, out, want)
		}
	}
	for args, want := range map[string]string{
		"trace web": "pod=u1", "trace actor/pods/web/c": "actor=pods%2Fu1%2Fc", "trace": "", "trace actor/gone -f": "actor=gone&follow=true",
		"trace gone -n shop": "namespace=shop&pod=gone",
	} {
		f.Command(t, strings.Fields(args)...)
		if got := f.Queries[len(f.Queries)-1]; got != want {
			t.Errorf("%s asks for %q, want %q", args, got, want)
		}
	}
	out, _, _ := f.Command(t, "trace", "web", "-o", "json")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	var e supervisors.Entry
	if err := json.Unmarshal([]byte(lines[2]), &e); err != nil || len(lines) != 4 || e.Kind != supervisors.OfCall || e.Took != 60*time.Millisecond {
		t.Errorf("%v %s", err, out)
	}
	if out, _, _ = f.Command(t, "trace", "web", "-o", "mermaid"); !strings.HasPrefix(out, "sequenceDiagram\n    participant a0 as pods\n") {
		t.Error(out)
	}
	if out, _, _ = f.Command(t, "trace", "web", "-o", "perfetto"); !json.Valid([]byte(out)) || !strings.Contains(out, `"name":"pod (work)"`) {
		t.Error(out)
	}
}

func TestTheCriticalPathIsPrinted(t *testing.T) {
	f := fake.Start(t, newTraceCommand)
	hasTrace(f)
	out, notes, code := f.Command(t, "trace", "web", "--critical-path")
	want := `AT       TOOK  SHARE  KIND      ACTOR  WHAT
+0.000s  10ms  10.0%  handling  pod    Started
+0.010s  5ms   5.0%   work      pod    RunPodSandbox
+0.015s  60ms  60.0%  call      CRI    RunPodSandbox
+0.075s  5ms   5.0%   work      pod    RunPodSandbox
+0.080s  20ms  20.0%  handling  pods   PodStatusChanged

From start to ready: 100ms
  call      60ms  60.0%
  work      10ms  10.0%
  handling  30ms  30.0%
`
	if out != want || code != 0 {
		t.Errorf("%d %s\n%s\nwant\n%s", code, notes, out, want)
	}
	whole := f.Trace.Entries
	f.Trace.Entries = slices.Delete(slices.Clone(whole), 2, 3)
	out, _, _ = f.Command(t, "trace", "web", "--critical-path")
	want = `
Not the pod's start: the agent found it running and adopted it. From the agent's first message to ready: 100ms
  work      70ms  70.0%
  handling  30ms  30.0%
`
	if !strings.HasSuffix(out, want) {
		t.Errorf("%s\nwant\n%s", out, want)
	}
	f.Trace.Entries = whole
	f.Trace.Entries[3].Began = f.Trace.Entries[3].Began.Add(10 * time.Microsecond)
	if out, _, _ := f.Command(t, "trace", "web", "--critical-path"); !strings.Contains(out, "\n1 more take 10µs together, each less than 0.1%") {
		t.Error(out)
	}
	f.Trace.Entries = whole[:3]
	for args, want := range map[string]string{
		"web":                 "pod default/web has no critical path: it has not become ready yet (playlet explain pod/web says how it is)",
		"":                    "name the pod",
		"actor/images":        "name the pod",
		"web -f":              "leave out --follow and --since",
		"web -o mermaid":      "leave out -o mermaid",
		"web --since=-1s":     "--since=-1s: it must be more than 0",
		"web -o dot":          `--output="dot" is unknown; it may be text, json, mermaid, perfetto`,
		"a/b/c":               "names no pod",
		"other/web -n shop":   "-n names",
		"web -o json --x=dot": "unknown flag",
	} {
		if _, notes, code := f.Command(t, append([]string{"trace", "--critical-path"}, strings.Fields(args)...)...); code != 1 || !strings.Contains(notes, want) {
			t.Errorf("%s: %d %s", args, code, notes)
		}
	}
	f.Trace.Entries = nil
	for args, want := range map[string]string{
		"gone": `there is no pod "gone" in any namespace (playlet pods lists them); no message of it is recorded either (a pod that is gone is found by its UID)`, "actor/gone": "there is no gone (playlet actors lists them)",
		"actor/": "which actor?", "web -f -o perfetto": "--follow prints text or json",
	} {
		if _, notes, code := f.Command(t, append([]string{"trace"}, strings.Fields(args)...)...); code != 1 || !strings.Contains(notes, want) {
			t.Errorf("%s: %d %s", args, code, notes)
		}
	}
}
