package questions

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/backoff"
)

const (
	timeout = 15 * time.Second
	renew   = time.Minute
)

var (
	start = time.Unix(1_000_000, 0)
	mount = Key{Name: "mount"}
	retry = backoff.Policy{First: time.Second, Max: 30 * time.Second}
)

type withdraw struct{ uid string }

func question(version any) Question {
	return Question{Key: mount, To: messages.Volumes, Message: "mount", Version: version, Class: Class{Timeout: timeout, Retry: retry}}
}

func TestAsk_SendsNewQuestionsAndRepeatsOverdueOnes(t *testing.T) {
	var o Tracker
	for _, s := range []struct {
		after time.Duration
		sends int
	}{{0, 1}, {0, 0}, {timeout - 1, 0}, {timeout, 1}, {timeout, 0}, {2 * timeout, 1}} {
		if got := len(o.Ask(start.Add(s.after), []Question{question(nil)})); got != s.sends {
			t.Errorf("after %s: got %d messages, want %d", s.after, got, s.sends)
		}
	}
	if got, want := o.Next(), start.Add(3*timeout); !got.Equal(want) {
		t.Errorf("next time is %s, want %s", got, want)
	}
}

func TestAsk_ReplacesChangedQuestions(t *testing.T) {
	var o Tracker
	o.Ask(start, []Question{question(1)})
	if got := len(o.Ask(start, []Question{question(2)})); got != 1 {
		t.Errorf("got %d messages for a changed question, want 1", got)
	}
	if o.Answered(start, mount, 1) {
		t.Error("answer to the earlier version counted")
	}
	if !o.Answered(start, mount, 2) || o.Answered(start, mount, 2) {
		t.Error("want the first answer to the present version to count, and the second not to")
	}
	if !o.Next().IsZero() || len(o.Ask(start.Add(time.Hour), []Question{question(2)})) != 0 {
		t.Error("answered question was sent again")
	}
}

func TestAsk_WithdrawsUnansweredQuestionsOnce(t *testing.T) {
	var o Tracker
	var set []Question
	for i := range 3 {
		q := question(nil)
		q.Of, q.Withdrawal = strconv.Itoa(i), withdraw{"u"}
		set = append(set, q)
	}
	o.Ask(start, set)
	if got := o.Ask(start, nil); !slices.Equal(got, []Send{{messages.Volumes, withdraw{"u"}}}) {
		t.Errorf("got %v, want one withdrawal", got)
	}
	o.Ask(start, set[:1])
	if !o.Answered(start, set[0].Key, nil) {
		t.Fatal("answer did not count")
	}
	if got := o.Ask(start, nil); len(got) != 0 {
		t.Errorf("answered question was withdrawn with %v", got)
	}
	if o.Answered(start, set[0].Key, nil) || o.Pending(set[0].Key) {
		t.Error("withdrawn question is still open")
	}
}

func TestAnswered_RenewsQuestionsThatStay(t *testing.T) {
	var o Tracker
	q := question(nil)
	q.Class.Renew = renew
	o.Ask(start, []Question{q})
	o.Answered(start.Add(time.Second), mount, nil)
	if got, want := o.Next(), start.Add(time.Second+renew); !got.Equal(want) {
		t.Errorf("next time is %s, want %s", got, want)
	}
	if got := len(o.Ask(o.Next(), []Question{q})); got != 1 || !o.Pending(mount) {
		t.Errorf("got %d messages, want 1", got)
	}
}

func TestFailed_BacksOff(t *testing.T) {
	var o Tracker
	now := start
	o.Ask(now, []Question{question(nil)})
	for _, wait := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
		if got, want := o.Failed(now, mount), now.Add(wait); !got.Equal(want) {
			t.Fatalf("next try at %s, want %s", got, want)
		}
		if o.Pending(mount) {
			t.Error("question is pending after a failure")
		}
		if len(o.Ask(now.Add(wait-1), []Question{question(nil)})) != 0 {
			t.Error("question was sent before the end of its back-off")
		}
		now = now.Add(wait)
		if len(o.Ask(now, []Question{question(nil)})) != 1 {
			t.Error("question was not sent after its back-off")
		}
	}
	o.Ask(now, nil)
	o.Ask(now, []Question{question(nil)})
	if got, want := o.Failed(now, mount), now.Add(time.Second); !got.Equal(want) {
		t.Errorf("next try of a new question at %s, want %s", got, want)
	}
}

func TestRestarted_SendsToThatReceiverOnly(t *testing.T) {
	var o Tracker
	work := Question{Key: Key{Name: "remove"}, Message: "remove", Class: Class{Timeout: timeout}}
	read := Question{Key: Key{Name: "read"}, To: messages.Runtime, Message: "read", Class: Class{Timeout: timeout}}
	set := []Question{question(nil), work, read}
	o.Ask(start, set)
	o.Answered(start, mount, nil)
	for receiver, want := range map[messages.Address][]Send{
		messages.Volumes: {{messages.Volumes, "mount"}}, messages.Runtime: {{messages.Runtime, "read"}}, messages.Node: nil,
	} {
		o.Restarted(start, receiver)
		if got := o.Ask(start, set); !slices.Equal(got, want) {
			t.Errorf("restart of %q: got %v, want %v", receiver, got, want)
		}
	}
}

func TestAsk_RejectsEqualKeys(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	new(Tracker).Ask(start, []Question{question(nil), question(nil)})
}

// The property test below models one sender, two receivers and a network between them.

// request and reply are messages in the network.
type request struct {
	key     Key
	version int
	id      int // of this copy
}

type reply struct{ request }

type world struct {
	*rapid.T
	now     time.Time
	open    Tracker
	wants   map[Key]int // the version of each question that the sender needs to be answered
	results map[Key]int // the version of each answer that the sender has
	down    map[messages.Address]bool
	network []any

	sentAt  map[Key]time.Time // of the last sent copy
	sent    map[Key]int       // version of that copy
	counted map[Key]bool      // an answer was handed over since then
	excused map[Key]bool      // the question may be sent before its deadline
	ids     int
}

var keys = []Key{{Name: "mount"}, {Name: "image", Of: "a"}, {Name: "image", Of: "b"}, {Name: "cgroup"}}

func receiver(k Key) messages.Address {
	if k.Name == "image" {
		return messages.Images
	}
	return messages.Volumes
}

func newWorld(t *rapid.T) *world {
	w := &world{T: t, now: start, wants: map[Key]int{}, down: map[messages.Address]bool{}}
	w.forget()
	return w
}

// forget starts the sender without state.
func (w *world) forget() {
	w.open, w.results = Tracker{}, map[Key]int{}
	w.sentAt, w.sent, w.counted, w.excused = map[Key]time.Time{}, map[Key]int{}, map[Key]bool{}, map[Key]bool{}
}

// standing is a question that stays in the set after its answer.
var standing = Key{Name: "cgroup"}

// step is a step of the sender's machine: it asks for each missing answer.
func (w *world) step() {
	var set []Question
	for _, k := range keys {
		if v, wanted := w.wants[k]; wanted && (w.results[k] != v || k == standing) {
			w.ids++
			set = append(set, Question{Key: k, To: receiver(k), Message: request{k, v, w.ids}, Version: v,
				Class: Class{Timeout: timeout, Renew: renew, Retry: retry}})
		} else {
			delete(w.sentAt, k)
		}
	}
	for _, s := range w.open.Ask(w.now, set) {
		r := s.Message.(request)
		last, before := w.sentAt[r.key]
		if before && w.sent[r.key] == r.version && !w.excused[r.key] && w.now.Before(last.Add(timeout)) {
			w.Fatalf("%s was sent again after %s", r.key, w.now.Sub(last))
		}
		w.sentAt[r.key], w.sent[r.key], w.counted[r.key], w.excused[r.key] = w.now, r.version, false, false
		w.network = append(w.network, r)
	}
	for _, q := range set {
		if w.sent[q.Key] != q.Version {
			w.Fatalf("version %d of %s was not sent", q.Version, q.Key)
		}
	}
	if at := w.open.Next(); len(set) > 0 && (at.IsZero() || !at.After(w.now)) {
		w.Fatalf("next time is %s at %s, with %d open questions", at, w.now, len(set))
	}
}

// deliver hands the message to its receiver.
func (w *world) deliver(msg any) {
	switch m := msg.(type) {
	case request:
		if !w.down[receiver(m.key)] {
			w.network = append(w.network, reply{m})
		}
	case reply:
		v, wanted := w.wants[m.key]
		counts := w.open.Answered(w.now, m.key, m.version)
		if counts && (!wanted || v != m.version) {
			w.Fatalf("answer to version %d of %s counted, and version %d is open (%v)", m.version, m.key, v, wanted)
		}
		if counts && w.counted[m.key] {
			w.Fatalf("two answers to %s counted", m.key)
		}
		if counts {
			w.results[m.key], w.counted[m.key] = m.version, true
		}
	case messages.ServiceStarted:
		w.open.Restarted(w.now, m.Service)
		for _, k := range keys {
			w.excused[k] = w.excused[k] || receiver(k) == m.Service
		}
	}
	w.step()
}

func (w *world) takeFromNetwork() any {
	i := rapid.IntRange(0, len(w.network)-1).Draw(w.T, "message") // reordered
	msg := w.network[i]
	if rapid.IntRange(0, 4).Draw(w.T, "duplicated") > 0 {
		w.network = slices.Delete(w.network, i, i+1)
	}
	return msg
}

// Messages are lost, duplicated, delayed and reordered, questions change and are withdrawn, and sender and receivers are killed.
// No answer counts twice or for another question, no question is repeated early, and each remaining question is answered.
func TestTracker_EachQuestionIsAnswered(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(rt)
		for range rapid.IntRange(0, 80).Draw(rt, "steps") {
			k := rapid.SampledFrom(keys).Draw(rt, "key")
			switch rapid.IntRange(0, 9).Draw(rt, "event") {
			case 0, 1:
				w.wants[k]++
				w.step()
			case 2:
				delete(w.wants, k)
				w.step()
			case 3:
				w.now = w.now.Add(time.Duration(rapid.IntRange(1, 40).Draw(rt, "seconds")) * time.Second)
				w.step()
			case 4:
				if w.down[receiver(k)] = !w.down[receiver(k)]; !w.down[receiver(k)] {
					w.network = append(w.network, messages.ServiceStarted{Service: receiver(k)})
				}
			case 5:
				w.forget()
				w.step()
			case 6:
				if len(w.network) > 0 {
					w.takeFromNetwork() // lost
				}
			default:
				if len(w.network) > 0 {
					w.deliver(w.takeFromNetwork())
				}
			}
		}
		clear(w.down)
		for range 5 {
			w.now = w.now.Add(timeout)
			w.step()
			for len(w.network) > 0 {
				msg := w.network[0]
				w.network = w.network[1:]
				w.deliver(msg)
			}
		}
		for k, v := range w.wants {
			if w.results[k] != v {
				rt.Fatalf("%s: got answer %d, want %d", k, w.results[k], v)
			}
		}
		if _, stands := w.wants[standing]; !stands && !w.open.Next().IsZero() {
			rt.Fatal("timer is set without open questions")
		}
	})
}
