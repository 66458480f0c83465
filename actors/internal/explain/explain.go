// Package explain describes the state of pods, and the problems of the node, in plain sentences. It is pure: the sentences of
// "playlet pods", "playlet explain" and Events follow from the published state of the pods actor.
//
// The first sentence is the cause; an Event has Kubernetes' own words before it (Event). The fields of a sentence (tries, the
// next one, the container, the cause) come with the Reason from where it arises; no text is matched by its words.
package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/messages"
)

// Finding is one thing that a pod or the node waits for, or that is wrong with it. Its JSON is stable: fields are only added.
type Finding struct {
	// Code is Kubernetes' word for the symptom, e.g. CrashLoopBackOff; empty where nothing is wrong.
	Code      string `json:"code,omitempty"`
	Container string `json:"container,omitempty"`
	// Cause is one sentence that does not change with time alone.
	Cause    string    `json:"cause"`
	WaitsFor string    `json:"waitsFor,omitempty"`
	Since    time.Time `json:"since,omitzero"`
	// Tries counts the failed tries; LastError is the unabridged error of the last.
	Tries     int       `json:"tries,omitempty"`
	LastError string    `json:"lastError,omitempty"`
	NextTry   time.Time `json:"nextTry,omitzero"`
	// Until is the deadline of the present operation.
	Until  time.Time `json:"until,omitzero"`
	Remedy string    `json:"remedy,omitempty"` // the action that would unblock it
}

// Explanation is of one pod, or of the node. The first finding is the cause of its state.
type Explanation struct {
	Kind      string           `json:"kind"` // "Pod" or "Node"
	Namespace string           `json:"namespace,omitempty"`
	Name      string           `json:"name,omitempty"`
	UID       string           `json:"uid,omitempty"`
	Source    messages.Address `json:"source,omitempty"`
	Phase     string           `json:"phase,omitempty"`      // the API's
	Actor     string           `json:"actorPhase,omitempty"` // of the pod's actor
	Finding
	Others   []Finding `json:"others,omitempty"`
	Evidence []string  `json:"evidence,omitempty"`
}

// Pod explains a pod.
func Pod(p *board.Pod) Explanation {
	v := view{pod: p.Pod, is: p.Status, source: p.Source, ending: p.Ending != ""}
	if v.is == nil { // its actor has not reported yet
		v.is = &v1.PodStatus{Phase: v1.PodPending}
	}
	out := Explanation{Kind: "Pod", Namespace: p.Pod.Namespace, Name: p.Pod.Name, UID: string(p.Pod.UID), Source: p.Source,
		Phase: string(v.is.Phase), Actor: p.Phase}
	var all []Finding
	if q := p.Quarantine; q != nil {
		all = append(all, Finding{Code: messages.ReasonQuarantined, NextTry: q.Until, LastError: q.Reason,
			Cause: "the pod's actor failed too often and is in quarantine, and its containers are left alone: " +
				short(q.Reason),
			Remedy: "it is retried automatically; this is a bug in Playlet: the agent's log has the stack"})
	}
	var cleaning []Finding // the remains of a finished pod; its end comes first
	over := (v.is.Phase == v1.PodFailed || v.is.Phase == v1.PodSucceeded) && p.Ending == ""
	switch waits := p.Waiting != nil && p.Waiting.Code != ""; {
	case waits && over:
		cleaning = append(cleaning, v.reason(*p.Waiting))
	case waits:
		f := v.reason(*p.Waiting)
		if p.Ending != "" {
			f.Cause = Ending(p.Ending) + ": " + f.Cause
		}
		all = append(all, f)
	case p.Ending != "":
		all = append(all, Finding{Code: "Terminating", Cause: Ending(p.Ending), Since: p.EndingSince})
	}
	for _, f := range v.status(p) {
		if len(all) == 0 || f.Container == "" || f.Container != all[0].Container {
			all = append(all, f)
		}
	}
	if len(all) == 0 {
		all = append(all, v.fine(p))
	}
	all = append(all, cleaning...)
	for _, f := range p.Held {
		all = append(all, Held(f))
	}
	out.Finding, out.Others = all[0], all[1:]
	out.Evidence = v.evidence(p)
	return out
}

// Cause returns the sentence that explains why a pod is not healthy; empty if it is, or is still starting.
func Cause(p *board.Pod) string {
	e := Pod(p)
	switch e.Code {
	case "", messages.ReasonContainerCreating, restarted:
		return ""
	}
	return e.Cause
}

// Waits is the sentence on one reason for which a pod waits.
func Waits(pod *v1.Pod, s *v1.PodStatus, r messages.Reason) string {
	return WaitsOf("", pod, s, r)
}

// WaitsOf is Waits for a text that has named the container already: the sentence does not begin with its name.
func WaitsOf(container string, pod *v1.Pod, s *v1.PodStatus, r messages.Reason) string {
	return view{pod: pod, is: s, named: container}.reason(r).Cause
}

func problem(p messages.ManifestProblem) Finding {
	if p.Warning {
		return Finding{Code: "ManifestWarning", Cause: "a field of a manifest is ignored: " + ProblemText(p),
			Remedy: "correct " + p.Path + "; it is read again when it changes"}
	}
	return Finding{Code: "ManifestProblem", Cause: "its manifest cannot be used: " + ProblemText(p),
		WaitsFor: "a manifest without errors", Remedy: "fix " + p.Path + "; it is read again when it changes"}
}

// ProblemText is one line on a manifest problem: path:line: field: message.
func ProblemText(p messages.ManifestProblem) string {
	var b strings.Builder
	b.WriteString(p.Path)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d", p.Line)
	}
	b.WriteString(": ")
	if p.Field != "" {
		b.WriteString(p.Field + ": ")
	}
	b.WriteString(p.Message)
	if p.KeptLast {
		b.WriteString(" (the last good version keeps running)")
	}
	if p.Warning {
		b.WriteString(" (a warning: the pod runs)")
	}
	return b.String()
}

func unheard(s messages.Address) Finding {
	f := Finding{Code: "SourceUnheard", Cause: s.String() + " has not reported its pods yet", WaitsFor: s.String(),
		Remedy: "check the agent's log for " + s.String()}
	if s == messages.APIServer {
		f.Remedy = "check that the API server can be reached from this node, and that the node may list its pods"
	}
	return f
}

// view is a pod that is explained.
type view struct {
	pod *v1.Pod
	is  *v1.PodStatus
	// named is the container that the text before the sentence names.
	named string
	// source is where the pod comes from; empty if no remedy is shown.
	source messages.Address
	ending bool // the pod, not only a container of it
}

// evidence returns the facts behind the findings.
func (v view) evidence(p *board.Pod) []string {
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if r := p.Waiting; r != nil {
		add("waits for %s: %s", r.Code, short(r.Message))
	}
	if p.Ending != "" {
		add("ending since %s: %s", p.EndingSince.Format(time.RFC3339), p.Ending)
	}
	if v.is.Reason != "" {
		add("status %s: %s", v.is.Reason, short(v.is.Message))
	}
	for _, c := range v.is.Conditions {
		if c.Status != v1.ConditionTrue {
			add("condition %s is %s since %s: %s", c.Type, c.Status, c.LastTransitionTime.Format(time.RFC3339),
				strings.TrimPrefix(c.Reason+": "+c.Message, ": "))
		}
	}
	for _, c := range v.statuses() {
		switch s := c.State; {
		case s.Waiting != nil:
			add("container %s is waiting: %s", c.Name, strings.TrimSuffix(s.Waiting.Reason+": "+short(s.Waiting.Message), ": "))
		case s.Running != nil:
			add("container %s is running since %s, ready %t, %d restarts", c.Name,
				s.Running.StartedAt.Format(time.RFC3339), c.Ready, c.RestartCount)
		}
		for _, t := range []*v1.ContainerStateTerminated{c.State.Terminated, c.LastTerminationState.Terminated} {
			if t != nil {
				add("container %s ended at %s: %s, exit code %d, %s", c.Name, t.FinishedAt.Format(time.RFC3339), t.Reason,
					t.ExitCode, short(t.Message))
			}
		}
	}
	return out
}

func (v view) statuses() []v1.ContainerStatus {
	return slices.Concat(v.is.InitContainerStatuses, v.is.ContainerStatuses, v.is.EphemeralContainerStatuses)
}

// maxWords is the maximum length of a quotation in a sentence, in bytes, including the ellipsis.
const maxWords = 304

// short is the beginning of a text in one line.
func short(s string) string {
	return messages.Shorten(strings.Join(strings.Fields(s), " "), maxWords)
}
