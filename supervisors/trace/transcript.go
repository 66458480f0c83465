// Package trace renders flight recorder entries: as a transcript, as a sequence diagram, as a trace for Perfetto, and as the
// critical path of a pod's start. It is pure: entries in, text out.
//
// The critical path of a start follows the causes back from the first ready status. Its segments are contiguous, so that they
// add up to the duration of the start.
package trace

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// Names put the names of pods in place of their UIDs.
type Names struct {
	Pod  string            // the UID of the pod that all is about, which is just "pod"; empty: it is about several
	Pods map[string]string // "NAMESPACE/NAME" by UID
}

// Of is the path of an actor as a person reads it.
func (n Names) Of(a messages.Address) string {
	uid := a.PodUID()
	if uid == "" {
		return a.String()
	}
	below := strings.TrimPrefix(string(a), string(messages.PodAddress(uid)))
	name := n.Pods[uid]
	switch {
	case uid == n.Pod:
		return "pod" + below
	case name == "":
		return a.String()
	}
	return string(messages.Pods) + "/" + name + below
}

// message is the name of an entry's message or work, which may end with the UID of its pod.
func (n Names) message(e *supervisors.Entry) string {
	what, found := strings.CutSuffix(e.Message, " "+e.Flow.Pod)
	if name := n.Pods[e.Flow.Pod]; found && name != "" {
		return what + " " + name
	}
	return e.Message
}

// receiver returns the name of an entry's receiver. For a call it is the external service, not the actor that stands for it.
func (n Names) receiver(e *supervisors.Entry) string {
	switch call := e.Kind == supervisors.OfCall; {
	case call && e.To == messages.Runtime:
		return "CRI"
	case call && e.To == messages.APIServer:
		return "API server"
	}
	return n.Of(e.To)
}

// node is an entry at its place: work is below the message that led to it, and a call below its work.
type node struct {
	*supervisors.Entry
	depth int
}

// order puts messages in the order in which they were handled, each before the work that it led to.
func order(entries []supervisors.Entry) []node {
	here := map[uint64]bool{}
	for i := range entries {
		here[entries[i].ID] = true
	}
	var roots []node
	leaves := map[uint64][]node{}
	for i := range entries {
		e := &entries[i]
		n := node{Entry: e}
		switch e.Kind {
		case supervisors.OfWork:
			n.depth = 1
		case supervisors.OfCall:
			n.depth = 2
		case supervisors.OfMessage, supervisors.OfTimer, supervisors.OfChaos:
		}
		if n.depth > 0 && here[e.Cause] {
			leaves[e.Cause] = append(leaves[e.Cause], n)
		} else {
			roots = append(roots, n)
		}
	}
	out := make([]node, 0, len(entries))
	var add func([]node)
	add = func(list []node) {
		slices.SortStableFunc(list, func(x, y node) int { return x.Began.Compare(y.Began) })
		for _, n := range list {
			out = append(out, n)
			below := leaves[n.ID]
			delete(leaves, n.ID)
			add(below)
		}
	}
	add(roots)
	return out
}

// Heading is above the columns of a transcript.
const Heading = "      TIME   QUEUED     TOOK  FROM → TO  MESSAGE"

// Transcript returns one line per entry: its begin, relative to start, its time in the queue and in handling, sender,
// receiver, message and digest.
func Transcript(entries []supervisors.Entry, start time.Time, names Names) []string {
	out := make([]string, 0, len(entries))
	for _, n := range order(entries) {
		if n.Forgotten > 0 {
			out = append(out, fmt.Sprintf("%28s  … %d entries of this story are forgotten", "", n.Forgotten))
		}
		out = append(out, fmt.Sprintf("%10s %8s %8s  %s%s", offset(n.Began.Sub(start)), short(n.Began.Sub(n.Sent)), short(n.Took),
			strings.Repeat("  ", n.depth), what(n.Entry, names)))
	}
	return out
}

// Start is when the first of the entries was sent; zero where there is none.
func Start(entries []supervisors.Entry) time.Time {
	if len(entries) == 0 {
		return time.Time{}
	}
	return slices.MinFunc(entries, func(x, y supervisors.Entry) int { return x.Sent.Compare(y.Sent) }).Sent
}

// what describes an entry in words, without its times.
func what(e *supervisors.Entry, names Names) string {
	from := names.Of(e.From)
	switch e.Kind {
	case supervisors.OfWork:
		from += "  work"
	case supervisors.OfTimer:
		from += "  timer"
	case supervisors.OfChaos:
		from += "  CHAOS at"
	case supervisors.OfCall:
		from += " → " + names.receiver(e) + " "
	case supervisors.OfMessage:
		if e.From != e.To {
			from += " → " + names.Of(e.To)
		}
		from += " "
	}
	s := from + " " + names.message(e)
	if e.Digest != "" {
		s += "  " + e.Digest
	}
	if e.Panic != "" {
		s += "  PANIC: " + e.Panic
	}
	return s
}

func offset(d time.Duration) string {
	if d.Abs() < time.Hour {
		return fmt.Sprintf("%+.3fs", d.Seconds())
	}
	return fmt.Sprintf("%+.0fs", d.Seconds())
}

// short is a duration with three digits at most.
func short(d time.Duration) string {
	unit := time.Duration(1)
	for d = max(d, 0); d/unit >= 1000; {
		unit *= 10
	}
	return d.Round(unit).String()
}
