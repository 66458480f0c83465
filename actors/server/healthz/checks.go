// Package healthz has the checks of the agent's health, and answers /healthz with them.
package healthz

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/messages"
)

// verdict is the result of one check. Notes are information and do not make the node unhealthy.
type verdict struct {
	failed string // the reason; empty if healthy
	notes  []string
}

// check is one named check. It must return soon after ctx ends.
type check struct {
	name string
	run  func(ctx context.Context) verdict
}

// Tree is the part of the running tree that checks ask.
type Tree interface {
	Ask(ctx context.Context, to messages.Address, question any) (any, error)
	Quarantined() map[messages.Address]messages.ChildQuarantined
}

// Config has the sources of the checks. None of its functions may block.
type Config struct {
	// Context ends with the process.
	Context context.Context // answers are shared by requests, whose own contexts end earlier
	Board   *board.Board
	Tree    func() Tree // nil before it runs
	Runtime func() api.Runtime
	Notes   []Note
	// NoPlugins returns the reason that device plugins cannot register, or "".
	NoPlugins func() string
	// Observe receives the result of each check; may be nil.
	Observe func(check string, healthy bool)
}

// Note is a check that never fails: pods keep running, and a restart of the agent would not help. Says returns the problems in
// sentences; it must not block.
type Note struct {
	Check string
	Says  func() []string
}

// NoClusterDNS notes, on a node without clusterDNS, that pods with a cluster's DNS policy use the node's resolver.
func NoClusterDNS(b *board.Board) Note {
	return Note{"dns", func() []string {
		count := 0
		for _, p := range b.Now().Pods {
			s := &p.Pod.Spec
			if s.DNSPolicy == v1.DNSClusterFirst && !s.HostNetwork || s.DNSPolicy == v1.DNSClusterFirstWithHostNet {
				count++
			}
		}
		if count == 0 {
			return nil
		}
		return []string{fmt.Sprintf("no clusterDNS is set: pods with dnsPolicy ClusterFirst (%d) use the node's resolver", count)}
	}}
}

// Checks are the checks of /healthz. Safe for concurrent use.
type Checks struct {
	conf   Config
	checks []check

	mu    sync.Mutex // held while pods is asked: concurrent requests share the answer
	asked time.Time
	pods  verdict
}

// podsFresh is how long an answer of pods is valid: probes on the loopback must not become work for the most important actor.
const podsFresh = time.Second

// askTimeout bounds a question to an actor.
const askTimeout = 2 * time.Second

const starting = "the agent is starting: its actors do not run yet"

func fine(context.Context) verdict { return verdict{} }

// New prepares the checks.
func New(conf Config) *Checks {
	h := &Checks{conf: conf}
	h.checks = []check{
		{"ping", fine},
		{"runtime", h.runtime},
		{"supervisors", h.supervisors},
		{"sources", h.sources},
		{"pods", h.answers},
	}
	for _, n := range conf.Notes {
		h.checks = append(h.checks, check{n.Check, func(context.Context) verdict { return verdict{notes: n.Says()} }})
	}
	if conf.Observe != nil {
		for i, c := range h.checks {
			h.checks[i].run = func(ctx context.Context) verdict {
				v := c.run(ctx)
				conf.Observe(c.name, v.failed == "")
				return v
			}
		}
	}
	return h
}

// runtime fails while the container runtime is unreachable or not ready.
func (h *Checks) runtime(context.Context) verdict {
	r := h.conf.Runtime()
	var out verdict
	if !r.Ready {
		out.failed = "the container runtime is not ready"
		if r.Endpoint != "" {
			out.failed = fmt.Sprintf("the container runtime at %s is not ready", r.Endpoint)
		}
		if r.Reason != nil {
			out.failed += ": " + r.Reason.String()
		}
		return out
	}
	out.failed = r.Stale
	if !r.NetworkReady {
		out.notes = append(out.notes, "only pods on the host's network can start: "+r.NetworkReason)
	}
	if r.Refused != "" {
		out.notes = append(out.notes, r.Refused)
	}
	return out
}

// supervisors fails while a permanent actor of the tree is kept stopped. A pod in quarantine is a note: it is a problem of one
// pod, not of the node.
func (h *Checks) supervisors(context.Context) verdict {
	tree := h.conf.Tree()
	if tree == nil {
		return verdict{failed: starting}
	}
	var out verdict
	var failed []string
	names := map[messages.Address]string{}
	for _, p := range h.conf.Board.Now().Pods {
		names[messages.PodAddress(string(p.Pod.UID))] = p.Pod.Namespace + "/" + p.Pod.Name
	}
	quarantined := tree.Quarantined()
	for _, a := range slices.Sorted(maps.Keys(quarantined)) {
		q := quarantined[a]
		why := fmt.Sprintf("in quarantine until %s: %s", q.Until.Format(time.RFC3339), q.Reason)
		switch {
		case a.Parent() != messages.Pods:
			failed = append(failed, fmt.Sprintf("actor %s is %s", a, why))
		case names[a] != "":
			out.notes = append(out.notes, fmt.Sprintf("pod %s (%s) is %s", names[a], a.Name(), why))
		default:
			out.notes = append(out.notes, fmt.Sprintf("pod %s is %s", a.Name(), why))
		}
	}
	out.failed = strings.Join(failed, "; ")
	return out
}

// sources fails until each source of this node has sent its pods: before that, no pod is ended as undesired. A silent API server
// is a note: no restart of the agent brings it back, and it may be a pod of this node.
func (h *Checks) sources(context.Context) verdict {
	now := h.conf.Board.Now()
	if now.Version == 0 {
		return verdict{failed: "no source has been heard yet"}
	}
	var out verdict
	var names []string
	for _, s := range now.Unheard {
		if s == messages.APIServer {
			out.notes = append(out.notes, "not heard yet: "+s.String())
			continue
		}
		names = append(names, s.String())
	}
	if len(names) > 0 {
		out.failed = "not heard yet: " + strings.Join(names, ", ")
	}
	for _, p := range now.Problems {
		out.notes = append(out.notes, api.ProblemText(p))
	}
	return out
}

// answers fails if the pods actor does not answer: then the tree does not work. State that it cannot write to disk is a note.
func (h *Checks) answers(context.Context) verdict {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.asked.IsZero() && time.Since(h.asked) < podsFresh {
		return h.pods
	}
	tree := h.conf.Tree()
	if tree == nil {
		return verdict{failed: starting}
	}
	// Not the request's context: waiting requests would inherit its deadline.
	ctx, cancel := context.WithTimeout(h.conf.Context, askTimeout)
	defer cancel()
	h.pods = verdict{notes: h.conf.Board.Now().Unwritten}
	if _, err := tree.Ask(ctx, messages.Pods, messages.GetInspection{}); err != nil {
		h.pods.failed = err.Error()
	}
	h.asked = time.Now()
	return h.pods
}
