package sim

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
)

// Entry is one call in the journal.
type Entry struct {
	// Seq orders the beginnings and EndSeq the ends of calls, in one count: a was over before b began if and only if
	// a.EndSeq is not 0 and less than b.Seq. EndSeq is 0 while the call is under way.
	Seq, EndSeq   uint64
	Time, EndTime time.Time
	Target
	// Code and Err are how the call ended for the caller; OK and "" on success.
	Code codes.Code
	Err  string
	// Fault is the kind of the fault that struck the call, or "".
	Fault Kind
}

// Done says whether the call has ended.
func (e Entry) Done() bool { return e.EndSeq != 0 }

// Journal is every call so far in the order of their beginnings, those under way included. It is a copy.
func (r *Runtime) Journal() []Entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]Entry, len(r.journal))
	for i, e := range r.journal {
		all[i] = *e
	}
	return all
}

// Calls is the part of the journal with the given method name.
func (r *Runtime) Calls(name string) []Entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	var some []Entry
	for _, e := range r.journal {
		if e.Call == name {
			some = append(some, *e)
		}
	}
	return some
}

// ResetJournal forgets the journal and the highest counts of Counters, so that the next phase of a test, or a long
// run, starts with an empty page. Calls under way still end properly, unseen.
func (r *Runtime) ResetJournal() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.journal = nil
	r.forgotten += len(r.happenings)
	r.happenings = nil
	for _, c := range r.classes {
		*c = Concurrency{
			InFlight: c.InFlight, MaxInFlight: c.InFlight,
			Working: c.Working, MaxWorking: c.Working,
		}
	}
}

// WaitCall returns the first call of the journal that satisfies ok, waiting until there is one or ctx ends. It looks at
// a call when it begins and again when it ends.
func (r *Runtime) WaitCall(ctx context.Context, ok func(Entry) bool) (Entry, error) {
	next := 0
	for {
		news, upTo, recorded := r.happened(next)
		next = upTo
		for _, e := range news {
			if ok(e) {
				return e, nil
			}
		}
		select {
		case <-recorded:
		case <-ctx.Done():
			return Entry{}, ctx.Err()
		}
	}
}

// happened copies the beginnings and ends from number next on, and returns the number of the one to come with what
// wakes when it comes.
func (r *Runtime) happened(next int) (news []Entry, upTo int, recorded <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.happenings[max(0, next-r.forgotten):] {
		news = append(news, *e)
	}
	return news, r.forgotten + len(r.happenings), r.recorded.wait()
}

// recordLocked notes that a call has begun or ended.
func (r *Runtime) recordLocked(e *Entry) {
	r.happenings = append(r.happenings, e)
	r.recorded.fire()
}

// Class groups calls that compete for the same thing.
type Class string

// The classes, as the agent budgets them.
const (
	ClassStart  Class = "start"  // RunPodSandbox, CreateContainer, StartContainer
	ClassStop   Class = "stop"   // stopping and removing sandboxes and containers, removing images
	ClassPull   Class = "pull"   // PullImage
	ClassExec   Class = "exec"   // ExecSync
	ClassStream Class = "stream" // GetContainerEvents
	ClassRead   Class = "read"   // everything else
)

// ClassOf is the class of a method name.
func ClassOf(call string) Class {
	switch call {
	case "RunPodSandbox", "CreateContainer", "StartContainer":
		return ClassStart
	case "StopPodSandbox", "RemovePodSandbox", "StopContainer", "RemoveContainer", "RemoveImage":
		return ClassStop
	case "PullImage":
		return ClassPull
	case "ExecSync":
		return ClassExec
	case "GetContainerEvents":
		return ClassStream
	}
	return ClassRead
}

// Concurrency counts the calls of one class. Working leaves out those that only wait for a grace period.
type Concurrency struct {
	Calls                 int
	InFlight, MaxInFlight int
	Working, MaxWorking   int
}

// Counters is the concurrency of every class that was called so far.
func (r *Runtime) Counters() map[Class]Concurrency {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make(map[Class]Concurrency, len(r.classes))
	for class, c := range r.classes {
		all[class] = *c
	}
	return all
}

func (r *Runtime) classLocked(class Class) *Concurrency {
	if r.classes[class] == nil {
		r.classes[class] = &Concurrency{}
	}
	return r.classes[class]
}

func (c *Concurrency) begin() {
	c.Calls++
	c.InFlight++
	c.MaxInFlight = max(c.MaxInFlight, c.InFlight)
	c.work(1)
}

func (c *Concurrency) end() {
	c.InFlight--
	c.work(-1)
}

// work counts one call in or out of those that work: at its beginning and end, and around a grace period.
func (c *Concurrency) work(delta int) {
	c.Working += delta
	c.MaxWorking = max(c.MaxWorking, c.Working)
}
