// Package summary describes the state of a pod, or of the node, briefly: as a row of a table, a line, or a note.
package summary

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cmd/playlet/cli"
	"github.com/playlet-dev/playlet/messages"
)

// The headings of rows.
var (
	Heading     = []string{"NAMESPACE", "NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP"}
	WideHeading = append(Heading[:len(Heading):len(Heading)], "NODE", "SOURCE", "PHASE", "UID", "WAITING FOR")
)

// Row is one line of the table.
func Row(p *api.Pod, now time.Time, wide bool) []string {
	s := api.Summarize(p)
	restarts := strconv.Itoa(s.Restarts)
	if s.Restarts > 0 && !s.RestartedAt.IsZero() {
		restarts += fmt.Sprintf(" (%s ago)", duration.HumanDuration(now.Sub(s.RestartedAt)))
	}
	row := []string{
		p.Pod.Namespace, p.Pod.Name, fmt.Sprintf("%d/%d", s.Ready, s.Total), cli.Plain(s.Status), restarts, age(p.Pod, now),
		cli.OrNone(IP(p.Pod)),
	}
	if wide {
		row = append(row, cli.OrNone(p.Pod.Spec.NodeName), cli.OrNone(string(p.Source)), cli.OrNone(p.Phase), string(p.Pod.UID),
			cli.OrNone(WaitingFor(p, now)))
	}
	return row
}

// Line is a pod in a few words, the same until it changes.
func Line(p *api.Pod) string {
	s := api.Summarize(p)
	text := fmt.Sprintf("%s  %d/%d ready", cli.Plain(s.Status), s.Ready, s.Total)
	if ip := IP(p.Pod); ip != "" {
		text += "  " + ip
	}
	if s.Restarts > 0 {
		text += fmt.Sprintf("  %d restarts", s.Restarts)
	}
	if waits := WaitingFor(p, time.Time{}); waits != "" {
		text += "  (" + waits + ")"
	}
	return text
}

// RowKey identifies the contents of a row except those that change with time. A watch prints a row again when it changes.
func RowKey(p *api.Pod, wide bool) string {
	row := Row(p, time.Time{}, false)
	row[4], row[5] = strconv.Itoa(api.Summarize(p).Restarts), ""
	if wide {
		row = append(row, p.Phase, WaitingFor(p, time.Time{}))
	}
	return strings.Join(row, "\x00")
}

// WaitingFor returns the sentence with the reason why a pod does not progress, with its times unless now is zero. It is empty if
// the pod is not waiting.
func WaitingFor(p *api.Pod, now time.Time) string {
	text := p.Cause
	if q := p.Quarantine; q != nil && !now.IsZero() && q.Until.After(now) {
		return cli.Plain(text + "; retry in " + duration.HumanDuration(q.Until.Sub(now)))
	}
	if text == "" || p.Waiting == nil {
		return cli.Plain(text)
	}
	r, killing := p.Waiting, p.Waiting.Code == messages.ReasonKilling
	retry := !now.IsZero() && r.RetryAt.After(now)
	switch since := duration.HumanDuration(max(now.Sub(r.Since), 0)); {
	case r.Since.IsZero() || now.IsZero():
	case killing:
		text += "; stopping for " + since
	case retry:
		text += "; failing for " + since
	default:
		text += " (for " + since + ")"
	}
	switch in := duration.HumanDuration(r.RetryAt.Sub(now)); {
	case r.Permanent:
		text += "; retrying will not help"
	case retry && killing:
		text += "; killed in " + in
	case retry:
		text += "; retry in " + in
	}
	return cli.Plain(text)
}

// age counts from the pod's creation or, where no API server made it, from when it was started here.
func age(pod *v1.Pod, now time.Time) string {
	since := pod.CreationTimestamp
	if since.IsZero() && pod.Status.StartTime != nil {
		since = *pod.Status.StartTime
	}
	if since.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(now.Sub(since.Time))
}

// IP is the first address of the pod, empty where it has none yet.
func IP(pod *v1.Pod) string {
	if len(pod.Status.PodIPs) > 0 {
		return pod.Status.PodIPs[0].IP
	}
	return pod.Status.PodIP
}

// Notes returns the facts without a column in the table: the reasons why pods wait, one line per pod. The wide table has a
// column for them.
func Notes(pods []api.Pod, now time.Time) []string {
	var out []string
	for i := range pods {
		if text := WaitingFor(&pods[i], now); text != "" {
			out = append(out, fmt.Sprintf("%s/%s: %s", pods[i].Pod.Namespace, pods[i].Pod.Name, text))
		}
	}
	return out
}

// NodeNotes returns the problems of the node as a whole: its runtime, its sources, and the manifests of the chosen pods, or of
// all if mayMean is nil.
func NodeNotes(n *api.Node, mayMean func(namespace, name string) bool, now time.Time) []string {
	var out []string
	if r := n.Runtime; !r.Ready {
		text := "the container runtime is not ready"
		if r.Endpoint != "" {
			text = fmt.Sprintf("the container runtime at %s is not ready", r.Endpoint)
		}
		if !r.Since.IsZero() && !now.IsZero() {
			text += " since " + duration.HumanDuration(now.Sub(r.Since))
		}
		if r.Reason != nil {
			text += ": " + r.Reason.String()
		}
		out = append(out, cli.Plain(text)+"; pods are shown as they were last seen")
	} else if !r.NetworkReady {
		out = append(out,
			cli.Plain("the runtime's network is not ready, only pods on the host's network can start: "+r.NetworkReason))
	}
	out = append(out, n.Short...)
	for _, s := range n.Unheard {
		out = append(out, fmt.Sprintf("%s has not reported yet; its pods are not shown", s))
	}
	for _, p := range n.Problems {
		namespace, name, named := strings.Cut(p.Pod, "/")
		if named && mayMean != nil && !mayMean(namespace, name) {
			continue
		}
		kind := "manifest problem: "
		if p.Warning {
			kind = "manifest warning: "
		}
		out = append(out, kind+cli.Plain(api.ProblemText(p)))
	}
	return out
}
