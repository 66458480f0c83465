package sim

import (
	"context"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
)

// Entry is one call in the journal.
type Entry struct {
	// Seq orders the beginnings and EndSeq the ends of calls, in one sequence: a ended before b began if and only if a.EndSeq is
	// not 0 and less than b.Seq. EndSeq is 0 while the call is in progress.
	Seq, EndSeq   uint64
	Time, EndTime time.Time
	Target
	// Code and Err are the result for the caller; OK and "" on success.
	Code codes.Code
	Err  string
	// Fault is the kind of the applied fault, or "".
	Fault Kind
}

// Done reports whether the call has ended.
func (e Entry) Done() bool { return e.EndSeq != 0 }

// Journal returns a copy of every call so far, in the order of their beginnings, including those in progress.
func (r *Runtime) Journal() []Entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]Entry, len(r.journal))
	for i, e := range r.journal {
		all[i] = *e
	}
	return all
}

// Calls returns the part of the journal with the given method name.
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

// Forget drops all calls that have ended from the journal, and the names of removed objects. No WaitCall may be in progress.
func (r *Runtime) Forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.journal = slices.DeleteFunc(r.journal, func(e *Entry) bool { return e.EndSeq != 0 })
	r.happenings = nil
	maps.DeleteFunc(r.store.targets, func(id string, _ Target) bool {
		return r.store.sandboxes[id] == nil && r.store.containers[id] == nil
	})
}

// WaitCall returns the first call of the journal that satisfies ok, waiting until there is one or ctx ends. It checks a call when
// it begins and again when it ends.
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

// happened copies the beginnings and ends from number next on. It returns the number of the next one and the channel that is
// closed when it comes.
func (r *Runtime) happened(next int) (news []Entry, upTo int, recorded <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.happenings[next:] {
		news = append(news, *e)
	}
	return news, len(r.happenings), r.recorded.wait()
}

// recordLocked records that a call has begun or ended.
func (r *Runtime) recordLocked(e *Entry) {
	r.happenings = append(r.happenings, e)
	r.recorded.fire()
}
