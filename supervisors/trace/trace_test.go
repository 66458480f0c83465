package trace

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

var zero = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func at(ms int) time.Time { return zero.Add(time.Duration(ms) * time.Millisecond) }

// entry is one of pod u, with its times in milliseconds.
func entry(id, cause uint64, kind supervisors.EntryKind, from, to messages.Address, message, digest string, sent, began, ended int) supervisors.Entry {
	return supervisors.Entry{Seq: id, ID: id, Cause: cause, Flow: supervisors.Flow{ID: 1, Pod: "u"}, Kind: kind, From: from, To: to,
		Message: message, Digest: digest, Sent: at(sent), Began: at(began), Took: at(ended).Sub(at(began))}
}

const (
	msg, timer, work, call = supervisors.OfMessage, supervisors.OfTimer, supervisors.OfWork, supervisors.OfCall

	pod = messages.Address("pods/u")
)

// started is the start of a pod, in which each kind of wait is once on its critical path.
func started() []supervisors.Entry {
	read := entry(1, 99, work, messages.File, messages.File, "ReadManifests", "", 0, 1, 10)
	read.Flow.Pod = ""
	return []supervisors.Entry{
		read,
		entry(2, 1, msg, messages.File, messages.Pods, "SourcePodsWanted", "pods=1", 10, 12, 15),
		entry(3, 2, msg, messages.Pods, pod, "Started", "", 14, 14, 20),
		entry(5, 4, call, pod, messages.Runtime, "RunPodSandbox", "default/web", 18, 25, 65),
		entry(6, 4, call, pod, messages.Runtime, "PodSandboxStatus", "", 65, 66, 68),
		entry(4, 3, work, pod, pod, "RunPodSandbox", "", 16, 17, 70),
		entry(7, 4, msg, pod, pod, "SandboxStarted", "", 70, 71, 75),
		entry(8, 3, msg, pod, messages.Images, "PullImage", "image=app:1", 19, 19, 21), // not on the path
		entry(9, 7, timer, pod, pod, "retry", "", 90, 91, 95),
		entry(10, 9, msg, pod, messages.Pods, "PodStatusChanged", "Running ready", 94, 96, 97),
		entry(11, 10, msg, pod, messages.Pods, "PodStatusChanged", "Running ready", 98, 98, 99),
	}
}

var names = Names{Pod: "u", Pods: map[string]string{"u": "default/web", "v": "default/db"}}

func TestTheCriticalPath(t *testing.T) {
	type part struct {
		kind  SegmentKind
		name  string
		began int
		took  int
	}
	whole := []part{
		{Queue, "ReadManifests", 0, 1}, {Working, "ReadManifests", 1, 9}, {Queue, "SourcePodsWanted", 10, 2}, {InHand, "SourcePodsWanted", 12, 2},
		{InHand, "Started", 14, 2}, {Queue, "RunPodSandbox", 16, 1}, {Working, "RunPodSandbox", 17, 1}, {Queue, "RunPodSandbox", 18, 7},
		{Calling, "RunPodSandbox", 25, 40}, {Queue, "PodSandboxStatus", 65, 1}, {Calling, "PodSandboxStatus", 66, 2}, {Working, "RunPodSandbox", 68, 2},
		{Queue, "SandboxStarted", 70, 1}, {InHand, "SandboxStarted", 71, 4}, {Waiting, "retry", 75, 15}, {Queue, "retry", 90, 1}, {InHand, "retry", 91, 3},
		{Queue, "PodStatusChanged", 94, 2}, {InHand, "PodStatusChanged", 96, 1},
	}
	without := func(ids ...uint64) []supervisors.Entry {
		return slices.DeleteFunc(started(), func(e supervisors.Entry) bool { return slices.Contains(ids, e.ID) })
	}
	foreign := started()
	foreign[5].Flow.Pod, foreign[5].Cause, foreign[5].Sent, foreign[5].Began, foreign[5].Took = "v", 50, at(-50), at(-49), 119*time.Millisecond // work for another pod, which this one joined
	event := without(5, 6)
	event[3] = entry(4, 98, work, messages.Runtime, messages.Runtime, "GetContainerEvents", "", 66, 66, 70)
	event[3].Flow.Pod = ""
	adopted := without(5, 6) // the runtime was only read
	forgotten := without(10, 11)
	forgotten[3].Forgotten = 7
	readyOnly := without(5, 6)
	readyOnly[0].Forgotten = 7
	for name, c := range map[string]struct {
		entries []supervisors.Entry
		want    []part
		err     error
	}{
		"a whole start": {started(), whole, nil},
		"an adoption":   {adopted, slices.Concat(whole[:5], []part{{Queue, "RunPodSandbox", 16, 1}, {Working, "RunPodSandbox", 17, 53}}, whole[12:]), nil},
		"a cause is missing": {without(4), slices.Concat(whole[:4], []part{{InHand, "Started", 14, 5}, {InHand, "PullImage", 19, 2},
			{Outside, "SandboxStarted", 21, 49}}, whole[12:]), nil},
		"an event of the runtime": {event, slices.Concat(whole[:4], []part{{InHand, "Started", 14, 5}, {InHand, "PullImage", 19, 2},
			{Outside, "GetContainerEvents", 21, 45}, {Working, "GetContainerEvents", 66, 4}}, whole[12:]), nil},
		"nothing is before": {without(1, 2, 3, 4, 8), slices.Concat([]part{{Outside, "SandboxStarted", 18, 52}}, whole[12:]), nil},
		"joined work": {foreign, slices.Concat([]part{{Working, "RunPodSandbox", 0, 18}},
			whole[7:]), nil},
		"not ready":                       {without(10, 11), nil, ErrNotReady},
		"begin is gone":                   {forgotten, nil, ErrForgotten},
		"the calls of the start are gone": {readyOnly, nil, ErrForgotten},
		"nothing":                         {nil, nil, ErrNotReady},
	} {
		got, err := CriticalPath(c.entries, names)
		if !errors.Is(err, c.err) {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil {
			continue
		}
		var parts []part
		for _, s := range got.Segments {
			parts = append(parts, part{s.Kind, s.Name, int(s.Began.Sub(zero).Milliseconds()), int(s.Took.Milliseconds())})
		}
		if wantAdopted := !slices.ContainsFunc(c.entries, func(e supervisors.Entry) bool { return e.Kind == call }); got.Adopted != wantAdopted {
			t.Errorf("%s: adopted is %t, want %t", name, got.Adopted, wantAdopted)
		}
		if !reflect.DeepEqual(parts, c.want) || got.Took != at(97).Sub(got.Began) {
			t.Errorf("%s: %s\n%v\nwant\n%v", name, got.Took, parts, c.want)
		}
	}
}

// Whatever the entries are, the segments join and add up.
func TestTheCriticalPathAddsUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []supervisors.Entry
		ms := rapid.IntRange(0, 100)
		for id := range rapid.Uint64Range(1, 12).Draw(t, "count") {
			kind := rapid.SampledFrom([]supervisors.EntryKind{msg, timer, work, call}).Draw(t, "kind")
			sent := ms.Draw(t, "sent")
			began := sent + ms.Draw(t, "queued")
			e := entry(id+1, rapid.Uint64Range(0, 13).Draw(t, "cause"), kind, pod, pod, "m", "", sent, began, began+ms.Draw(t, "took"))
			e.Flow.Pod = rapid.SampledFrom([]string{"u", "v", ""}).Draw(t, "pod")
			all = append(all, e)
		}
		last := &all[len(all)-1]
		last.Kind, last.Message, last.Digest, last.Flow.Pod = msg, "PodStatusChanged", supervisors.Ready, "u"
		got, err := CriticalPath(all, names)
		if err != nil {
			t.Fatal(err)
		}
		next := got.Began
		for _, s := range got.Segments {
			if !s.Began.Equal(next) || s.Took <= 0 {
				t.Fatalf("%v begins at %v", s, next)
			}
			next = next.Add(s.Took)
		}
		if !next.Equal(got.Ready) || got.Took != got.Ready.Sub(got.Began) || next.Before(last.Ended()) {
			t.Fatalf("%+v ends at %v", got, next)
		}
	})
}

func TestATranscriptShowsLeavesBelowTheirCause(t *testing.T) {
	entries := started()[1:7]
	entries[1].Forgotten = 3
	entries[2].Panic = "nil map"
	entries[4].Message = "read pod u"
	want := `   +0.002s      2ms      3ms  sources/file → pods  SourcePodsWanted  pods=1
                              … 3 entries of this story are forgotten
   +0.004s       0s      6ms  pods → pod  Started
   +0.007s      1ms     53ms    pod  work read pod default/web
   +0.015s      7ms     40ms      pod → CRI  RunPodSandbox  default/web  PANIC: nil map
   +0.056s      1ms      2ms      pod → CRI  PodSandboxStatus
   +0.061s      1ms      4ms  pod  SandboxStarted`
	if got := strings.Join(Transcript(entries, Start(entries), names), "\n"); got != want {
		t.Errorf("\n%s\nwant\n%s", got, want)
	}
	for d, want := range map[time.Duration]string{0: "0s", -5: "0s", 999: "999ns", 1234567: "1.23ms", 53950328: "54ms", 61 * time.Second: "1m1s"} {
		if got := short(d); got != want {
			t.Errorf("%d: %s, want %s", d, got, want)
		}
	}
	for a, want := range map[messages.Address]string{"pods/u/c": "pod/c", "pods/v/c": "pods/default/db/c", "pods/x": "pods/x", "": "node"} {
		if got := names.Of(a); got != want {
			t.Errorf("%q: %s, want %s", a, got, want)
		}
	}
}

// No text of an entry gets out of its statement.
func TestASequenceDiagramIsWellFormed(t *testing.T) {
	entries := started()
	entries[2].Digest, entries[8].Panic = "a;b #1 %%{init} <b> \"x\"\nend", "over\rhere"
	entries[7].To, entries[1].Forgotten = "end;end", 2
	statement := regexp.MustCompile(`^(sequenceDiagram|    participant a\d+ as [^;{}<>"]+|    a\d+(->>|-->>|--\))a\d+: .+|    Note over a\d+: .+)$`)
	got := Mermaid(entries, names)
	for line := range strings.Lines(got) {
		line = strings.TrimSuffix(line, "\n")
		plain := regexp.MustCompile(`#\d+;`).ReplaceAllString(line, "")
		if !statement.MatchString(plain) || strings.ContainsAny(plain, ";#{}<%\"") && !strings.Contains(plain, ">>") {
			t.Errorf("%q", line)
		}
	}
	for _, want := range []string{"participant a2 as pod\n", "a2->>a3: RunPodSandbox (default/web)\n    a3-->>a2: 40ms\n", "Note over a2: RunPodSandbox, 53ms\n",
		"a2--)a2: retry\n", "PANIC: over here\n", "end#59;end", "… 2 entries are forgotten", "a#59;b #35;1 #37;#37;#123;init#125; #60;b#62;"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

// Slices of one track do not cut one another, and each arrow goes from a slice to a slice.
func TestATraceForPerfetto(t *testing.T) {
	entries := append(started(), entry(20, 3, work, pod, pod, "side by side", "", 20, 20, 60), entry(21, 20, call, pod, messages.Runtime, "X", "", 30, 30, 50))
	var out bytes.Buffer
	if err := Perfetto(&out, entries, names); err != nil {
		t.Fatal(err)
	}
	var got struct{ TraceEvents []event }
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	tracks, slicesOf, arrows := map[int]string{}, map[int][]event{}, map[string]int{}
	for _, e := range got.TraceEvents {
		switch e.Phase {
		case "M":
			tracks[e.TID] = fmt.Sprint(e.Args["name"])
		case "X":
			for _, o := range slicesOf[e.TID] {
				apart := o.At+*o.Took <= e.At || e.At+*e.Took <= o.At
				inside := o.At <= e.At && e.At+*e.Took <= o.At+*o.Took
				if !apart && !inside {
					t.Errorf("%v cuts %v on %s", e, o, tracks[e.TID])
				}
			}
			slicesOf[e.TID] = append(slicesOf[e.TID], e)
		case "s", "f":
			arrows[e.Phase]++
			if !slices.ContainsFunc(slicesOf[e.TID], func(o event) bool { return o.At <= e.At && e.At <= o.At+*o.Took }) {
				t.Errorf("the arrow %v is in no slice of %s", e, tracks[e.TID])
			}
		}
	}
	want := []string{"images", "pod", "pod (work)", "pod (work)", "pods", "sources/file (work)"}
	var found []string
	for _, name := range tracks {
		found = append(found, name)
	}
	if slices.Sort(found); !reflect.DeepEqual(found, want) || arrows["s"] != arrows["f"] || arrows["s"] != 9 {
		t.Errorf("tracks %q, arrows %v", found, arrows)
	}
}
