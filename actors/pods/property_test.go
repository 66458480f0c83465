package pods

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/internal/overdue"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/supervisortest"
)

// storm is an actor that receives messages in any order, many of them late, duplicated or lost.
type storm struct {
	*rapid.T
	tb      testing.TB
	kit     *supervisortest.Kit
	actor   *actor
	store   *store
	full    bool                           // the disk accepts no write
	sources map[messages.Address][]*v1.Pod // the list of each source, reported or not
	over    map[string]bool                // UIDs of finished pods that a source has listed ever since
	marks   map[string]string              // the mark of each pod in the last audit
	stopped []string                       // actors with a pending order to stop
	orders  int                            // number of entries of kit.Stopped already handled
}

func newStorm(t *rapid.T, tb testing.TB) *storm {
	s := &storm{T: t, tb: tb, sources: map[messages.Address][]*v1.Pod{}, over: map[string]bool{}, marks: map[string]string{}}
	s.store = newStore(tb.TempDir())
	s.store.writing = overdue.NewWriter("records", time.Minute, func(map[string]record) error {
		if s.full {
			return errors.New("the disk is full")
		}
		return nil
	})
	s.begin()
	return s
}

// begin begins another life of the actor: its children are gone with the one before.
func (s *storm) begin() {
	s.stopped, s.orders = nil, 0
	here := small()
	here.Registered = false
	s.actor = newWith(Options{Sources: []messages.Address{messages.File, messages.APIServer}, Cluster: true, Board: board.New(),
		LocalNode: here}, s.store)("pods").(*actor)
	s.kit = supervisortest.New(s.tb, messages.Pods, s.actor)
}

func (s *storm) uid() string { return fmt.Sprint("u", rapid.IntRange(0, 5).Draw(s.T, "uid")) }

// pod returns a pod with one of three names, by its UID. The folder has u0 to u2, the API server the others.
func (s *storm) pod(source messages.Address) *v1.Pod {
	first := map[messages.Address]int{messages.APIServer: 3}[source]
	uid := fmt.Sprint("u", rapid.IntRange(first, first+2).Draw(s.T, "uid"))
	p := asking(uid, int64(rapid.SampledFrom([]int{100, 700}).Draw(s.T, "cpu")))
	p.Name = "name" + string('a'+uid[1]%3)
	if source == messages.File {
		static(p)
	}
	switch rapid.IntRange(0, 5).Draw(s.T, "kind") {
	case 0, 1, 2:
		critical(p)
	case 3:
		if source == messages.APIServer {
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: s.kit.Now()}, new(int64(5))
		}
	}
	return p
}

func (s *storm) sourceSays() {
	source := rapid.SampledFrom(s.actor.opts.Sources).Draw(s.T, "source")
	list := slices.Clone(s.sources[source])
	for range rapid.IntRange(0, 3).Draw(s.T, "changes") {
		p, leave := s.pod(source), rapid.IntRange(0, 3).Draw(s.T, "leave") == 0
		list = slices.DeleteFunc(list, func(o *v1.Pod) bool { return o.UID == p.UID && (leave || p.DeletionTimestamp != nil) })
		if !slices.ContainsFunc(list, func(o *v1.Pod) bool { return o.UID == p.UID || o.Name == p.Name }) && !leave {
			list = append(list, p)
		}
	}
	s.sources[source] = list
	s.forgetUnnamed()
	wants(s.kit, source, list...)
}

// forgetUnnamed lets pods start over that no source lists, or that end and are listed again.
func (s *storm) forgetUnnamed() {
	named := map[string]bool{}
	for _, list := range s.sources {
		for _, p := range list {
			e := s.actor.entries[string(p.UID)]
			goes := e != nil && (e.state == over || e.state == leaving || e.ends())
			named[string(p.UID)] = p.DeletionTimestamp != nil || !goes
		}
	}
	maps.DeleteFunc(s.over, func(uid string, _ bool) bool { return !named[uid] })
}

func (s *storm) audit() {
	m := messages.RuntimeAudited{ReadAt: s.kit.Now()}
	for _, uid := range []string{"u0", "u1", "u2", "u3", "u4", "u5"} {
		own := map[bool]string{true: "file", false: "api"}[uid < "u3"]
		mark := rapid.SampledFrom([]string{"none", "none", "none", "other", own}).Draw(s.T, "found")
		if s.marks[uid] = mark; mark != "none" {
			m.Pods = append(m.Pods, messages.PodFacts{UID: uid, Name: "name" + string('a'+uid[1]%3), Namespace: "default",
				Sandboxes: []messages.SandboxFact{{ID: "s", Ready: true, Source: mark}}})
		}
	}
	s.kit.Send(messages.Runtime, m)
}

func (s *storm) ended() {
	uid, gone := s.uid(), rapid.Bool().Draw(s.T, "gone")
	e := s.actor.entries[uid]
	if e != nil && e.hasActor() && e.state != leaving && !gone && e.wanted != nil && !e.ends() {
		s.over[uid] = true
	}
	s.kit.Send(messages.PodAddress(uid), messages.PodEnded{UID: uid, Gone: gone, Status: &v1.PodStatus{Phase: v1.PodFailed}})
}

func (s *storm) step() {
	switch rapid.IntRange(0, 11).Draw(s.T, "step") {
	case 0, 1:
		s.sourceSays()
	case 2:
		s.audit()
	case 3, 4:
		s.ended()
	case 5, 6:
		if s.stopped = append(s.stopped, s.kit.Stopped[s.orders:]...); len(s.stopped) > 0 {
			uid := s.stopped[0]
			s.stopped, s.orders = s.stopped[1:], len(s.kit.Stopped)
			s.kit.Send(messages.Pods, messages.ChildStopped{Name: uid})
		}
	case 7:
		s.kit.RunWork()
	case 8:
		s.full = rapid.Bool().Draw(s.T, "full")
		s.kit.Advance(time.Duration(rapid.IntRange(1, 40).Draw(s.T, "seconds")) * time.Second)
	case 9:
		uid := s.uid()
		s.kit.Send(messages.Pods, messages.ChildQuarantined{Name: uid, Reason: "panic"})
		if rapid.Bool().Draw(s.T, "again") {
			s.kit.Send(messages.Pods, messages.ChildStarted{Name: uid, Again: true})
		}
	case 10:
		status := &v1.PodStatus{Phase: rapid.SampledFrom([]v1.PodPhase{v1.PodRunning, v1.PodSucceeded}).Draw(s.T, "phase")}
		s.kit.Send(messages.Pods, messages.PodStatusChanged{UID: s.uid(), Status: status})
	case 11:
		if rapid.IntRange(0, 2).Draw(s.T, "kill") == 0 {
			s.begin()
		}
	}
}

func (s *storm) check() {
	runs := map[string]string{}
	for uid, e := range s.actor.entries {
		if !e.hasActor() {
			continue
		}
		if e.runs() && (e.record.Final != nil || s.over[uid]) {
			s.Fatalf("pod %s had finished, and is %s", uid, e.state)
		}
		if other := runs[e.name]; e.runs() && other != "" {
			s.Fatalf("%s and %s have the same name and run", uid, other)
		}
		if e.runs() {
			runs[e.name] = uid
		}
		if (e.runs() || e.ends()) && s.actor.unready() != nil {
			s.Fatalf("pod %s is %s, and it is not known what runs", uid, e.state)
		}
	}
}

// Whatever the order of messages: no transition outside the table is taken (it panics), a finished pod does not run again, no two
// pods of one name run, and no unlisted pod is ended before its possible sources have reported.
func TestAnyMessages(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := newStorm(rt, t)
		for range rapid.IntRange(20, 150).Draw(rt, "steps") {
			ending := s.orphans()
			s.step()
			s.check()
			for uid := range s.orphans() {
				source := marks[s.marks[uid]]
				if _, heard := s.actor.sources.lists[source]; !ending[uid] && !heard && !s.actor.sources.synced() {
					rt.Fatalf("pod %s is ended, and %s has not been heard", uid, s.marks[uid])
				}
			}
		}
	})
}

// orphans returns the pods that are ended because no source lists them.
func (s *storm) orphans() map[string]bool {
	out := map[string]bool{}
	for uid, e := range s.actor.entries {
		if e.hasActor() && e.orphan() {
			out[uid] = true
		}
	}
	return out
}
