package server

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/internal/eventlog"
	"github.com/playlet-dev/playlet/actors/internal/history"
	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// Figures are returned as measured, within a deadline; an agent without them returns an error.
func TestFigures(t *testing.T) {
	limited := false
	r := newRig(t, func(c *Config) {
		c.Figures = func(ctx context.Context, _ bool) api.Figures {
			_, limited = ctx.Deadline()
			out := api.Figures{Missing: []string{"no cgroup"}, Agent: api.Process{CPU: time.Second}}
			out.Node.NodeName = "node1"
			return out
		}
	})
	if err := r.listeners.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, err := r.client.Figures(t.Context())
	if err != nil || got.Node.NodeName != "node1" || got.Missing[0] != "no cgroup" || got.Agent.CPU != time.Second || !limited {
		t.Errorf("%+v, %v, with a deadline: %v", got, err, limited)
	}
	r = openRig(t)
	if _, err := r.client.Figures(t.Context()); err == nil || err.Error() != "this agent measures nothing" {
		t.Errorf("without figures: %v", err)
	}
}

// Events are readable by Kubernetes' clients; the client also reads the answer of older agents, which only had the items.
func TestEvents(t *testing.T) {
	log, err := eventlog.Open("")
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range []string{"web", "db"} {
		log.Put(&v1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: of + ".1"}, InvolvedObject: v1.ObjectReference{Name: of}})
	}
	r := newRig(t, func(c *Config) { c.Events = log })
	if err := r.listeners.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	said := body(t, r.raw("GET", "/v1/events"))
	read, err := runtime.Decode(scheme.Codecs.UniversalDeserializer(), []byte(said))
	list, _ := read.(*v1.EventList)
	if err != nil || list == nil || list.ResourceVersion != "2" || len(list.Items) != 2 || list.Items[1].Name != "db.1" ||
		list.Items[1].Kind != "" {
		t.Errorf("a Kubernetes client reads %+v, %v", read, err)
	}
	if got, err := r.client.Events(t.Context(), api.Filter{Name: "web"}); err != nil || len(got.Items) != 1 || got.Items[0].Name != "web.1" {
		t.Errorf("of one object: %+v, %v", got, err)
	}
	enough := errors.New("enough")
	err = r.client.WatchEvents(t.Context(), api.Filter{Name: "none"}, func(line *v1.EventList) error {
		if line.Kind != "EventList" || line.Items == nil {
			t.Errorf("a line of the stream: %+v", line)
		}
		return enough
	})
	if !errors.Is(err, enough) {
		t.Error(err)
	}
	var before v1.EventList
	if err := json.Unmarshal([]byte(`{"items":[{"metadata":{"name":"a"}}]}`), &before); err != nil || before.Items[0].Name != "a" {
		t.Errorf("%+v, %v", before, err)
	}
}

func TestPods(t *testing.T) {
	r := openRig(t)
	empty, err := r.client.Pods(t.Context(), api.Filter{})
	if err != nil || empty.Metadata.ResourceVersion != "0" || len(empty.Pods) != 0 || empty.Runtime.Name != "containerd" {
		t.Fatalf("before anything was published: %+v, %v", empty, err)
	}
	retry := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	web, db, other := pod("default", "web", "u1", &v1.PodStatus{Phase: v1.PodRunning, PodIP: "10.0.0.1"}),
		pod("default", "db", "u2", nil), pod("x", "web", "u3", nil)
	db.Waiting = &messages.Reason{Code: messages.ReasonErrImagePull, Message: "no such image", RetryAt: retry}
	db.Quarantine = &messages.ChildQuarantined{Name: "u2", Reason: "nil map", Until: retry}
	other.Ending = "its manifest is gone"
	problems := []messages.ManifestProblem{{Path: "/m/a.yaml", Line: 1, Message: "bad"}}
	r.board.Publish(board.Snapshot{Pods: []board.Pod{db, web, other}, Problems: problems,
		Unheard: []messages.Address{messages.File}})

	got, err := r.client.Pods(t.Context(), api.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	if got.Metadata.ResourceVersion != "1" || len(got.Pods) != 3 || !reflect.DeepEqual(got.Problems, problems) ||
		!slices.Equal(got.Unheard, []messages.Address{messages.File}) {
		t.Fatalf("%+v", got)
	}
	if p := got.Pods[0]; p.Waiting == nil || *p.Waiting != (api.Reason{Code: "ErrImagePull", Message: "no such image",
		RetryAt: retry}) ||
		p.Quarantine == nil || *p.Quarantine != (api.Quarantine{Reason: "nil map", Until: retry}) ||
		p.Pod.Status.Phase != v1.PodPending {
		t.Errorf("a pod that waits: %+v", p)
	}
	if p := got.Pods[1]; p.Pod.Kind != "Pod" || p.Pod.APIVersion != "v1" || p.Pod.Status.PodIP != "10.0.0.1" ||
		p.Source != messages.File ||
		p.Phase != "running" || p.Pod.Spec.Containers[0].Env[0].Value != "v" {
		t.Errorf("a pod that runs: %+v", p)
	}
	list := &v1.PodList{}
	if err := json.Unmarshal([]byte(body(t, r.raw("GET", "/v1/pods"))), list); err != nil || list.Kind != "PodList" ||
		list.ResourceVersion != "1" ||
		len(list.Items) != 3 || list.Items[1].Name != "web" || list.Items[1].Kind != "Pod" ||
		list.Items[1].Status.PodIP != "10.0.0.1" {
		t.Errorf("a Kubernetes client reads %+v, %v", list, err)
	}
	if p := got.Pods[2]; p.Ending != "its manifest is gone" {
		t.Errorf("a pod that ends: %+v", p)
	}
	if web.Pod.Kind != "" || web.Pod.Status.PodIP != "" {
		t.Error("the board's own pod was changed")
	}
	for f, want := range map[api.Filter][]string{
		{Namespace: "default"}: {"u2", "u1"}, {Name: "web"}: {"u1", "u3"}, {Namespace: "x", Name: "web"}: {"u3"},
		{Name: "nope"}: nil,
	} {
		got, err := r.client.Pods(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		var uids []string
		for i := range got.Pods {
			uids = append(uids, got.Pods[i].Ref().UID)
		}
		if !slices.Equal(uids, want) {
			t.Errorf("%+v chooses %v, want %v", f, uids, want)
		}
	}
}

func TestVersionTreeInspectionAndFlows(t *testing.T) {
	r := openRig(t)
	v, err := r.client.Version(t.Context())
	if err != nil || v.Version != "v1" || v.Kubernetes != "1.36.3" || v.Go == "" || v.PID == 0 || v.Since.IsZero() ||
		v.Runtime.Version != "2.4.2" {
		t.Errorf("%+v, %v", v, err)
	}
	r.tree.quarantined["pods/u0"] = messages.ChildQuarantined{Reason: "nil map"}
	r.board.Publish(board.Snapshot{Pods: []board.Pod{pod("default", "web", "u1", nil)}})
	tree, err := r.client.Actors(t.Context())
	want := []api.Actor{
		{Vitals: supervisors.Vitals{Path: "", Kind: "node", State: supervisors.Running}},
		{Vitals: supervisors.Vitals{Path: "pods", Kind: "pods", State: supervisors.Running}},
		{Vitals: supervisors.Vitals{Path: "pods/u0", State: supervisors.Quarantined, Failure: &supervisors.Failure{Reason: "nil map"}}},
		{Vitals: supervisors.Vitals{Path: "pods/u1", Kind: "pod", State: supervisors.Running}, Pod: "default/web"},
		{Vitals: supervisors.Vitals{Path: "server", Kind: "server", State: supervisors.Running}},
	}
	if err != nil || !reflect.DeepEqual(tree.Actors, want) {
		t.Errorf("%+v, %v", tree, err)
	}
	for path, kind := range map[messages.Address]supervisors.Kind{"": "node", "node": "node", "pods/u1": "pod", "pods/": "pods"} {
		in, err := r.client.Inspect(t.Context(), path)
		if err != nil || in.Kind != kind || in.Handled != 7 || in.Detail.(map[string]any)["pod"] != "a/b" {
			t.Errorf("%q: %+v, %v", path, in, err)
		}
	}
}

func TestTracesComeFromTheRecorder(t *testing.T) {
	r := openRig(t)
	r.tree.hangs = true // no actor is asked
	r.board.Publish(board.Snapshot{Pods: []board.Pod{pod("default", "web", "u1", nil)}})
	add := func(id uint64, flow string, from, to messages.Address) {
		at := time.Unix(int64(id), 0)
		r.tree.recorder.Add(supervisors.Entry{ID: id, Flow: supervisors.Flow{ID: 1, Pod: flow}, From: from, To: to, Sent: at, Began: at})
	}
	add(1, "u1", messages.Pods, "pods/u1")
	add(2, "u2", messages.Pods, "pods/u2")
	add(3, "", messages.Pods, messages.Images)
	for query, want := range map[string][]uint64{
		"": {1, 2, 3}, "?pod=web": {1}, "?pod=web&namespace=default": {1}, "?pod=u2": {2}, "?actor=images": {3}, "?actor=/pods/": {1, 2, 3},
		"?since=1970-01-01T00:00:02Z": {2, 3}, "?actor=server": nil,
	} {
		var got api.Trace
		if err := json.NewDecoder(r.raw("GET", "/v1/trace"+query).Body).Decode(&got); err != nil || got.Entries == nil {
			t.Fatalf("%s: %+v, %v", query, got, err)
		}
		var ids []uint64
		for _, e := range got.Entries {
			ids = append(ids, e.ID)
		}
		if !slices.Equal(ids, want) {
			t.Errorf("%s has %v, want %v", query, ids, want)
		}
	}
	lines, ctx := make(chan *api.Trace, 10), t.Context()
	go func() {
		_ = r.client.Trace(ctx, api.TraceOptions{Pod: "web", Follow: true}, func(l *api.Trace) error { lines <- l; return nil })
	}()
	next := func() *api.Trace {
		select {
		case l := <-lines:
			return l
		case <-time.After(waitLimit):
			t.Fatal("no line")
			return nil
		}
	}
	if l := next(); len(l.Entries) != 1 || l.Pod == nil || l.Pod.UID != "u1" {
		t.Errorf("the first line is %+v", l)
	}
	add(4, "u2", messages.Pods, "pods/u2")
	add(5, "u1", messages.Pods, "pods/u1")
	if l := next(); len(l.Entries) != 1 || l.Entries[0].ID != 5 {
		t.Errorf("the second line is %+v", l)
	}
}

func TestRefusals(t *testing.T) {
	r := openRig(t)
	r.tree.quarantined["pods/u0"] = messages.ChildQuarantined{Reason: "nil map",
		Until: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	check := func(method, path string, want api.Error) {
		t.Helper()
		resp := r.raw(method, path)
		var got api.Error
		if err := json.NewDecoder(resp.Body).Decode(&got); err != nil {
			t.Errorf("%s %s: not JSON: %v", method, path, err)
		}
		if !reflect.DeepEqual(got, want) || resp.StatusCode != want.Status ||
			resp.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %s: %d %+v, want %+v", method, path, resp.StatusCode, got, want)
		}
	}
	check("GET", "/v1/nope", api.Error{Status: 404, Text: "there is no /v1/nope"})
	check("GET", "/none", api.Error{Status: 404, Text: "there is no /none"})
	check("DELETE", "/v1/pods", api.Error{Status: 405, Text: "/v1/pods does not take DELETE; it takes GET, HEAD"})
	check("GET", "/v1/pods?watch=maybe", api.Error{Status: 400, Text: `watch="maybe" is neither true nor false`})
	check("GET", "/v1/pods?label=x", api.Error{Status: 400, Text: `unknown parameter "label"`})
	check("GET", "/v1/actors/pods/nope", api.Error{Status: 404, Text: `there is no actor "pods/nope"`})
	check("GET", "/v1/actors/pods/u0", api.Error{
		Status: 503, Actor: "pods/u0", Text: `actor "pods/u0": it is in quarantine until 2026-01-02T03:04:05Z: nil map`,
	})
	check("GET", "/v1/trace?pod=nope", api.Error{Status: 404, Text: `there is no pod "nope", and no message of one is recorded`})
	check("GET", "/v1/trace?actor=x", api.Error{Status: 404, Text: `there is no actor "x", and no message of one is recorded`})
	check("GET", "/v1/trace?actor=x&pod=y", api.Error{Status: 400, Text: "either a pod or an actor can be chosen"})
	r.tree.hangs = true
	var busy *api.Error
	if _, err := r.client.Inspect(t.Context(), "pods"); !errors.As(err, &busy) || busy.Status != 503 || busy.Actor != "pods" ||
		!strings.HasPrefix(busy.Text, `actor "pods": no answer to GetInspection: it is busy with GetDesired of pods/u1 since `) ||
		!strings.HasSuffix(busy.Text, "); 3 more wait") {
		t.Errorf("a hung actor: %v", err)
	}
	r.listeners.Attach(nil)
	for _, path := range []string{"/v1/actors/pods", "/v1/actors", "/v1/trace"} {
		check("GET", path, api.Error{Status: 503, Text: "the agent is starting: its actors do not run yet"})
	}
	if _, err := r.client.Actors(t.Context()); err == nil || err.Error() != "the agent is starting: its actors do not run yet" {
		t.Errorf("the client says %v", err)
	}
	if resp := r.raw("GET", "/v1/pods"); resp.StatusCode != http.StatusOK {
		t.Errorf("pods need no actor, and got %d", resp.StatusCode)
	}
}

// watch collects the lines of a stream until the test ends, which ends the stream first.
func (r *rig) watch(f api.Filter) <-chan *api.Change {
	out, ended := make(chan *api.Change, 100), make(chan struct{})
	ctx, cancel := context.WithCancel(r.Context())
	go func() {
		defer close(ended)
		defer close(out)
		err := r.client.Watch(ctx, f, func(c *api.Change) error { out <- c; return nil })
		if err != nil && !errors.Is(err, api.ErrStreamEnded) {
			r.Errorf("watch: %v", err)
		}
	}()
	r.Cleanup(func() { cancel(); <-ended })
	return out
}

func (r *rig) line(lines <-chan *api.Change) *api.Change {
	r.Helper()
	select {
	case c := <-lines:
		if c == nil {
			r.Fatal("the stream ended")
		}
		return c
	case <-time.After(waitLimit):
		r.Fatal("no line came")
		return nil
	}
}

func TestWatchTellsChangesAsTheyHappen(t *testing.T) {
	r := openRig(t)
	web, db := pod("default", "web", "u1", nil), pod("default", "db", "u2", nil)
	r.board.Publish(board.Snapshot{Audited: true, Pods: []board.Pod{db, web}})
	lines := r.watch(api.Filter{})
	if c := r.line(lines); !c.Full || len(c.Pods) != 2 || c.Node == nil || c.Version != 1 {
		t.Fatalf("the first line: %+v", c)
	}
	web.Status = &v1.PodStatus{Phase: v1.PodRunning}
	r.board.Publish(board.Snapshot{Audited: true, Pods: []board.Pod{db, web}})
	if c := r.line(lines); c.Full || len(c.Pods) != 1 || c.Pods[0].Pod.Status.Phase != v1.PodRunning || c.Node != nil ||
		len(c.Gone) != 0 {
		t.Fatalf("a changed pod: %+v", c)
	}
	r.board.Publish(board.Snapshot{Audited: true, Pods: []board.Pod{db, web}}) // nothing visible changes, so no line
	r.board.Publish(board.Snapshot{Audited: true, Pods: []board.Pod{web}, Problems: []messages.ManifestProblem{{Path: "p"}}})
	if c := r.line(lines); len(c.Pods) != 0 || len(c.Gone) != 1 ||
		c.Gone[0] != (api.Ref{Namespace: "default", Name: "db", UID: "u2"}) ||
		c.Node == nil || len(c.Node.Problems) != 1 || c.Version != 4 {
		t.Fatalf("a pod gone, and a problem: %+v", c)
	}
}

func TestWatchOfOnePodHearsOfNoOther(t *testing.T) {
	r := openRig(t)
	lines := r.watch(api.Filter{Namespace: "default", Name: "web"})
	if c := r.line(lines); !c.Full || len(c.Pods) != 0 || c.Version != 0 {
		t.Fatalf("%+v", c)
	}
	r.board.Publish(board.Snapshot{Pods: []board.Pod{pod("default", "db", "u2", nil), pod("x", "web", "u3", nil)}})
	r.board.Publish(board.Snapshot{Pods: []board.Pod{pod("default", "db", "u2", nil), pod("default", "web", "u1", nil)}})
	if c := r.line(lines); len(c.Pods) != 1 || c.Pods[0].Ref().UID != "u1" {
		t.Fatalf("%+v", c)
	}
}

func TestWatch_EndsWithClientOrProcess(t *testing.T) {
	r := openRig(t)
	ctx, cancel := context.WithCancel(t.Context())
	err := r.client.Watch(ctx, api.Filter{}, func(*api.Change) error { cancel(); return nil })
	if err != nil {
		t.Errorf("a client that goes is told %v", err)
	}
	stop := errors.New("enough")
	if err := r.client.Watch(t.Context(), api.Filter{}, func(*api.Change) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("a client that has enough is told %v", err)
	}
	err = r.client.Watch(t.Context(), api.Filter{}, func(*api.Change) error { return r.listeners.Close() })
	if !errors.Is(err, api.ErrStreamEnded) {
		t.Errorf("a client of an agent that stops is told %v", err)
	}
}

// TestAStreamIsEndedNotCut distinguishes an orderly end from a broken connection.
func TestAStreamIsEndedNotCut(t *testing.T) {
	r := openRig(t)
	stream := r.raw("GET", "/v1/pods?watch=true").Body
	if err := r.listeners.Close(); err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(stream); err != nil || len(text) == 0 {
		t.Errorf("%q, %v", text, err)
	}
}

func TestWatchesAreLimited(t *testing.T) {
	r := openRig(t)
	ctx, cancel := context.WithCancel(t.Context())
	var open sync.WaitGroup
	for range 32 {
		begun := make(chan struct{}, 1)
		open.Go(func() {
			_ = r.client.Watch(ctx, api.Filter{}, func(*api.Change) error { begun <- struct{}{}; return nil })
		})
		<-begun
	}
	stop := errors.New("it is open")
	once := func() error {
		return r.client.Watch(t.Context(), api.Filter{}, func(*api.Change) error { return stop })
	}
	var refused *api.Error
	if err := once(); !errors.As(err, &refused) || refused.Status != http.StatusTooManyRequests {
		t.Errorf("one watch too many is told %v", err)
	}
	cancel()
	open.Wait()
	for err := once(); !errors.Is(err, stop); err = once() { // the handlers notice by themselves; the test's own deadline bounds it
		r.board.Publish(board.Snapshot{})
	}
}

// Clients that open streams without reading keep no slot for long, e.g. a browser page that sleeps.
func TestSlowReadersAreLetGo(t *testing.T) {
	r := newRig(t, func(c *Config) { c.WriteTimeout = 500 * time.Millisecond })
	if err := r.listeners.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 32 {
		r.raw("GET", "/v1/pods?watch=true") // its body is not read
	}
	stop := errors.New("it is open")
	for i := 0; ; i++ { // unread data fills their connections; the test's own deadline bounds it
		big := pod("ns", "web", "u1", nil)
		big.Pod.Annotations = map[string]string{"large": strings.Repeat(string(rune('a'+i%26)), 200<<10)}
		r.board.Publish(board.Snapshot{Pods: []board.Pod{big}})
		err := r.client.Watch(t.Context(), api.Filter{}, func(*api.Change) error { return stop })
		if errors.Is(err, stop) {
			return
		}
		if full := new(api.Error); errors.As(err, &full) && full.Status != http.StatusTooManyRequests {
			t.Fatal(err) // otherwise it was rejected, or was too slow itself
		}
	}
}

// A request with a missing body is ended, whether or not its handler reads the body.
func TestABodyThatDoesNotCome(t *testing.T) {
	r := newRig(t, func(c *Config) { c.WriteTimeout = 100 * time.Millisecond })
	if err := r.listeners.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]string{"playlet": "HTTP/1.1 400", "stranger": "HTTP/1.1 403"} {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "unix", r.socket)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close() //nolint:errcheck // whoever ended it
		if err := conn.SetDeadline(time.Now().Add(waitLimit)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, "POST /v1/restart/u1 HTTP/1.1\r\nHost: "+host+"\r\nContent-Length: 10\r\n\r\n{"); err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(text), want) {
			t.Errorf("%s: %s, %v", host, text, err)
		}
	}
}

func TestTheClientSaysWhatIsTheMatter(t *testing.T) {
	dir := tempDir(t)
	_, err := api.NewClient(dir+"/none.sock").Pods(t.Context(), api.Filter{})
	want := "playlet is not running (no socket at " + dir + `/none.sock): start it with "playlet", or name its socket with --admin-socket or PLAYLET_SOCKET`
	if !errors.Is(err, api.ErrNotRunning) || err.Error() != want {
		t.Errorf("%v", err)
	}
	r := openRig(t)
	r.tree.quarantined["pods/ü x"] = messages.ChildQuarantined{Reason: "r"}
	if _, err := r.client.Inspect(t.Context(), "pods/ü x"); err == nil || !strings.Contains(err.Error(), `"pods/ü x": it is in quarantine`) {
		t.Errorf("a path is not escaped: %v", err)
	}
	if err := r.client.Trace(t.Context(), api.TraceOptions{Pod: "a/b?c"}, nil); err == nil || !strings.Contains(err.Error(), `"a/b?c"`) {
		t.Errorf("a name is not escaped: %v", err)
	}
}

// Resource shortages of the node are reported with its pods.
func TestWhatTheNodeIsShortOf(t *testing.T) {
	r := openRig(t)
	r.board.Publish(board.Snapshot{Version: 1, Under: []v1.NodeConditionType{v1.NodeDiskPressure}})
	const want = "the node is short of disk space: only static and critical pods are admitted"
	if got, err := r.client.Pods(t.Context(), api.Filter{}); err != nil || len(got.Node.Short) != 1 || got.Node.Short[0] != want {
		t.Errorf("%+v, %v", got, err)
	}
}

// The history of a pod's figures comes with the requests and limits of its containers.
func TestFiguresHistory(t *testing.T) {
	r := newRig(t, func(c *Config) {
		c.History = func(uid string) []history.Series {
			cores := 0.5
			return []history.Series{{Name: "", Samples: []history.Sample{{At: time.Unix(1, 0), CPU: &cores}}}, {Name: uid + "-app"}}
		}
		c.Board.Publish(board.Snapshot{Pods: []board.Pod{{Pod: &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{UID: "u1", Name: "web", Namespace: "n"},
			Spec: v1.PodSpec{Containers: []v1.Container{{Name: "u1-app", Resources: v1.ResourceRequirements{
				Limits: v1.ResourceList{v1.ResourceMemory: resource.MustParse("64Mi")},
			}}}},
		}, Status: &v1.PodStatus{}}}})
	})
	if err := r.listeners.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	answer := r.raw("GET", "/v1/figures/history?pod=u1")
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	body := string(text)
	for _, want := range []string{`"cpuCores":0.5`, `"everySeconds":10`, `"name":"u1-app"`, `"memory":"64Mi"`} {
		if !strings.Contains(body, want) {
			t.Errorf("got %s, want %s in it", body, want)
		}
	}
}
