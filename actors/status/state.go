package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/playlet-dev/playlet/actors/internal/apiclient"
)

// Trouble is a write to the API server that fails.
type Trouble struct {
	// Since is when the failures began.
	Since time.Time `json:"since"`
	// Pod is its namespace and name; empty for a failure that affects all pods.
	Pod string `json:"pod,omitempty"`
	// What is a sentence with the write and the API server's answer.
	What string `json:"what"`
}

// String returns the trouble in one line.
func (t Trouble) String() string {
	if t.Pod == "" {
		return fmt.Sprintf("%s, since %s", t.What, t.Since.Format(time.RFC3339))
	}
	return fmt.Sprintf("pod %s: %s, since %s", t.Pod, t.What, t.Since.Format(time.RFC3339))
}

// State holds the current failures, for readers that must not wait for the actor. The zero value has none. Safe for
// concurrent use.
type State struct {
	p         atomic.Pointer[[]Trouble]
	unwritten atomic.Int64
}

// Unwritten returns the number of pods with a write that waits or is in progress; 0 if the API server takes none.
func (s *State) Unwritten() int { return int(s.unwritten.Load()) }

// Load returns the current failures: the one that affects all pods first, then by pod name. It must not be changed.
func (s *State) Load() []Trouble {
	if p := s.p.Load(); p != nil {
		return *p
	}
	return nil
}

func (s *State) store(t []Trouble) { s.p.Store(&t) }

// failureState is the failure of one line.
type failureState struct {
	since   time.Time
	what    string
	outcome outcome
	quiet   bool // not reported yet
}

// failure describes the failed write and the answer.
func failure(a answer, node string) string {
	what := map[verb]string{
		patchStatus:  "its status cannot be written",
		deletePod:    "it has ended and cannot be removed",
		createMirror: "its mirror pod cannot be created",
		deleteMirror: "its mirror pod cannot be removed",
	}[a.job.verb]
	if a.job.verb == createMirror && apierrors.IsAlreadyExists(a.err) {
		return what + ": a pod of its name is there that is no mirror pod of this node, and is left as it is"
	}
	if a.job.verb == createMirror && refers(a.err) {
		return what +
			": the API server admits no mirror pod that refers to other objects (ConfigMaps, Secrets, claims, service " +
			"accounts). " +
			"The static pod runs all the same, and the API server does not show it: " + a.err.Error()
	}
	return what + ": " + apiclient.Explain(a.err, node)
}

// refers reports whether a mirror pod was rejected for its references. Two admission plugins check them: ServiceAccount and
// NodeRestriction.
func refers(err error) bool {
	return apierrors.IsForbidden(err) && (strings.Contains(err.Error(), " mirror pod may not ") ||
		strings.Contains(err.Error(), "can not create pods that reference "))
}

// troubles returns all failures for health. A failure that affects all pods is reported once.
func (b *machine) troubles() []Trouble {
	var out []Trouble
	waiting := 0
	for l := range b.troubled {
		switch t := l.failure; {
		case t == nil:
			delete(b.troubled, l)
		case t.quiet:
		case t.outcome == unavailable:
			waiting++
		default:
			out = append(out, Trouble{t.since, l.namespace + "/" + l.name, t.what})
		}
	}
	slices.SortFunc(out, func(a, b Trouble) int { return cmp.Compare(a.Pod, b.Pod) })
	if b.server.failures > 0 {
		first := Trouble{Since: b.server.since,
			What: fmt.Sprintf("nothing can be written to the API server about pods (%d wait): %s", waiting,
				apiclient.Explain(b.server.err, b.node))}
		out = slices.Insert(out, 0, first)
	}
	return out
}
