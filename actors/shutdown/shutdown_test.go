package shutdown

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
	"github.com/playlet-dev/playlet/supervisors/supervisortest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// login is an inhibitor that reports a state as soon as the test sets it.
type login struct {
	under    bool
	err      error
	released int
}

func (l *login) Await(context.Context, bool) (bool, error) { return l.under, l.err }

func (l *login) Release() error { l.released++; return nil }

func (l *login) Close() error { return nil }

type rig struct {
	*supervisortest.Kit
	login *login
	board *board.Board
}

var twoGroups = []Group{{0, 20 * time.Second}, {critical, time.Nanosecond}}

func begin(t *testing.T, pods ...board.Pod) *rig {
	t.Helper()
	r := &rig{login: &login{}, board: board.New()}
	r.publish(pods...)
	r.Kit = supervisortest.New(t, messages.Shutdown, New(Options{NodeName: "n1", Groups: twoGroups, Inhibitor: r.login,
		Board: r.board})("shutdown"))
	return r
}

func (r *rig) publish(pods ...board.Pod) { r.board.Publish(board.Snapshot{Pods: pods, Audited: true}) }

// works does the work of this name, and leaves all other.
func (r *rig) works(name string) {
	r.TB.Helper()
	for i, w := range r.Work {
		if strings.HasPrefix(w.Name, name) {
			r.Work = append(r.Work[:i], r.Work[i+1:]...)
			r.RunOne(w)
			return
		}
	}
	r.TB.Fatalf("no work %s", name)
}

// sentMessages returns the messages since the last call: evictions with grace periods, and reports of the shutdown.
func (r *rig) sentMessages() string {
	var out []string
	for _, m := range r.Take() {
		switch e := m.Msg.(type) {
		case messages.EvictPod:
			out = append(out, fmt.Sprintf("%s %d", e.UID, *e.Failure.Grace))
		case messages.NodeShutdownObserved:
			out = append(out, fmt.Sprintf("%s %t", m.To, e.Underway))
		}
	}
	return strings.Join(out, "; ")
}

func (r *rig) expect(what, want string) {
	r.TB.Helper()
	if got := r.sentMessages(); got != want {
		r.TB.Errorf("%s: %q, want %q", what, got, want)
	}
}

const await, end = "await a shutdown", "await the end"

func TestPodsEndGroupByGroup(t *testing.T) {
	plain, system := pod("plain", nil, 30), pod("system", new(int32(critical)), 30)
	r := begin(t, plain, system)
	r.works(await)
	r.expect("no shutdown", "")
	r.login.under = true
	r.works(await)
	r.expect("begun", "pods true; registration true; plain 20")
	r.Advance(reportEvery)
	r.expect("told again", "pods true; registration true; plain 20")
	if r.login.released != 0 {
		t.Error("the shutdown went on")
	}
	plain.Phase = finished
	r.publish(plain, system)
	r.works(end)
	r.expect("the next group", "system 0")
	r.works(end) // its time is up, and it is still there
	r.works("let the shutdown go on")
	if r.login.released != 1 {
		t.Error("the shutdown does not go on")
	}
	r.Advance(reportEvery)
	r.expect("afterwards", "pods true; registration true")
}

func TestACancelledShutdownEndsNothingMore(t *testing.T) {
	plain, system := pod("plain", nil, 30), pod("system", new(int32(critical)), 30)
	r := begin(t, plain, system)
	r.login.under = true
	r.works(await)
	r.expect("begun", "pods true; registration true; plain 20")
	r.login.under = false
	r.works(await)
	r.expect("cancelled", "pods false; registration false")
	plain.Phase = finished
	r.publish(plain, system)
	r.works(end)
	r.expect("the group that was being ended", "")
	r.Advance(reportEvery)
	r.expect("later", "pods false; registration false")
	if r.login.released != 0 {
		t.Error("the lock was given up")
	}
	r.login.under = true
	r.works(await)
	r.expect("another one has nobody left in its first group", "pods true; registration true")
	r.works(end)
	r.expect("and goes on with the second", "system 0")
}

// A restarted pods actor publishes no pods until the runtime has been audited, and none until a source names them, while they
// still run.
func TestShutdown_WaitsForUnknownPods(t *testing.T) {
	for name, s := range map[string]board.Snapshot{"not audited": {}, "unclaimed": {Audited: true, Unclaimed: 1}} {
		t.Run(name, func(t *testing.T) { waitsForUnknownPods(t, s) })
	}
}

func waitsForUnknownPods(t *testing.T, s board.Snapshot) {
	r := begin(t, pod("plain", nil, 30))
	r.login.under = true
	r.works(await)
	r.board.Publish(s)
	i := slices.IndexFunc(r.Work, func(w supervisors.Work) bool { return strings.HasPrefix(w.Name, end) })
	ctx, cancel := context.WithCancel(t.Context())
	audit := func() {
		if len(r.board.Now().Pods) > 0 {
			cancel() // the group's time is up
		} else {
			r.publish(pod("plain", nil, 30))
		}
	}
	if got := r.Work[i].Run(blockingContext{ctx, audit}); !reflect.DeepEqual(got, groupEnded{generation: 1, remaining: 1}) {
		t.Errorf("got %+v, want one pod left", got)
	}
}

// blockingContext is a context that reports each wait for its end.
type blockingContext struct {
	context.Context
	waits func()
}

func (b blockingContext) Done() <-chan struct{} {
	b.waits()
	return b.Context.Done()
}

func TestAnActorThatBeginsAnewGoesOn(t *testing.T) {
	r := begin(t, pod("plain", nil, 30))
	r.login.under = true
	r.Kit = supervisortest.New(t, messages.Shutdown, New(Options{Groups: twoGroups, Inhibitor: r.login, Board: r.board})("shutdown"))
	r.works(await)
	r.expect("after a restart", "pods true; registration true; plain 20")
}

func TestWithoutLogindAllElseGoesOn(t *testing.T) {
	r := begin(t, pod("plain", nil, 30))
	r.login.err = errors.New("no bus")
	r.works(await)
	r.expect("without logind", "")
	if len(r.Work) != 0 {
		t.Error("it is asked again at once")
	}
	r.login.err, r.login.under = nil, true
	r.Advance(retryAfter)
	r.sentMessages()
	r.works(await)
	r.expect("when logind is back", "pods true; registration true; plain 20")
}

func TestShutdown_Events(t *testing.T) {
	r := begin(t)
	for _, under := range []bool{true, false} {
		r.login.under = under
		r.works(await)
	}
	var got []string
	for _, m := range r.Take() {
		if e, ok := m.Msg.(messages.RecordEvent); ok && m.To == messages.Events {
			got = append(got, fmt.Sprintf("%s/%s %s %s: %s", e.Object.Kind, e.Object.Name, e.Type, e.Reason, e.Message))
		}
	}
	want := []string{"Node/n1 Normal Shutdown: Shutdown manager detected shutdown event",
		"Node/n1 Normal Shutdown: Shutdown manager detected shutdown cancellation"}
	if !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
}

// The shutdown goes on once the API server has the last statuses of the pods, or when the time is up. One that was cancelled
// meanwhile keeps the lock.
func TestShutdown_AwaitsStatuses(t *testing.T) {
	const statuses, goOn = "await the statuses", "let the shutdown go on"
	for name, c := range map[string]struct {
		unwritten []int // by look
		after     time.Duration
		cancel    bool
		looks     int
	}{
		"written at once":      {[]int{0}, 0, false, 1},
		"written later":        {[]int{2, 1, 0}, 0, false, 3},
		"no time left":         {nil, 30 * time.Second, false, 0},
		"cancelled meanwhile":  {[]int{0}, 0, true, 1},
		"without an APIServer": {nil, 0, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r, looks := begin(t), 0
			o := Options{NodeName: "n1", Groups: twoGroups, Inhibitor: r.login, Board: r.board}
			if name != "without an APIServer" {
				o.Unwritten = func() int { looks++; return c.unwritten[min(looks, len(c.unwritten))-1] }
			}
			r.Kit = supervisortest.New(t, messages.Shutdown, New(o)("shutdown"))
			r.login.under = true
			r.works(await)
			r.Advance(c.after)
			r.works(end)
			r.works(end)
			if c.looks > 0 {
				if c.cancel {
					r.login.under = false
					r.works(await)
				}
				r.works(statuses)
			}
			if releases := slices.ContainsFunc(r.Work, func(w supervisors.Work) bool { return w.Name == goOn }); releases == c.cancel {
				t.Errorf("the shutdown goes on: %v, want %v", releases, !c.cancel)
			} else if releases {
				r.works(goOn)
			}
			if want := map[bool]int{false: 1, true: 0}[c.cancel]; r.login.released != want || looks != c.looks {
				t.Errorf("released %d times after %d looks, want %d after %d", r.login.released, looks, want, c.looks)
			}
		})
	}
}

// The next group, which may have the drivers of volumes, ends after the ended pods' volumes are unstaged, or when the time of
// their group is up. Volumes that nobody used before the shutdown are not awaited, and none after the last group.
func TestShutdown_AwaitsUnstagedVolumes(t *testing.T) {
	for name, c := range map[string]struct {
		unused  [][]string // by call; the first is before the end of the pods
		overdue bool
		want    []string
		calls   int
	}{
		"none":           {[][]string{nil, nil}, false, nil, 2},
		"unstaged later": {[][]string{nil, {"a", "b"}, {"b"}, nil}, false, nil, 4},
		"unused before":  {[][]string{{"old"}, {"old", "a"}, {"old"}}, false, nil, 3},
		"hanging driver": {[][]string{{"old"}, {"old", "a"}, {"old", "a"}}, true, []string{"a"}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			r, calls := begin(t), 0
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			unused := func(context.Context) []string {
				calls++
				if c.overdue && calls == len(c.unused) {
					cancel()
				}
				return slices.Clone(c.unused[min(calls, len(c.unused))-1])
			}
			r.Kit = supervisortest.New(t, messages.Shutdown, New(Options{NodeName: "n1", Groups: twoGroups, Inhibitor: r.login,
				Board: r.board, Unused: unused})("shutdown"))
			r.login.under = true
			r.works(await)
			i := slices.IndexFunc(r.Work, func(w supervisors.Work) bool { return strings.HasPrefix(w.Name, end) })
			got := r.Work[i].Run(ctx)
			r.Work = slices.Delete(r.Work, i, i+1)
			if want := (groupEnded{generation: 1, staged: c.want}); !reflect.DeepEqual(got, want) || calls != c.calls {
				t.Errorf("got %+v after %d looks, want %+v after %d", got, calls, want, c.calls)
			}
			r.Send(messages.Shutdown, got)
			r.works(end)
			r.works("let the shutdown go on")
			if calls != c.calls {
				t.Errorf("%d looks for the last group, want none", calls-c.calls)
			}
		})
	}
}

// A disk that hangs does not keep a group from its end.
func TestShutdown_HungDisk(t *testing.T) {
	r, hang := begin(t), make(chan struct{})
	t.Cleanup(func() { close(hang) })
	r.Kit = supervisortest.New(t, messages.Shutdown, New(Options{NodeName: "n1", Groups: twoGroups, Inhibitor: r.login,
		Board: r.board, Unused: func(context.Context) []string { <-hang; return nil }})("shutdown"))
	r.login.under = true
	r.works(await)
	i := slices.IndexFunc(r.Work, func(w supervisors.Work) bool { return strings.HasPrefix(w.Name, end) })
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // the group's time is up
	if got := r.Work[i].Run(ctx); !reflect.DeepEqual(got, groupEnded{generation: 1}) {
		t.Errorf("got %+v, want the end of the group", got)
	}
}
