package client

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

var (
	podHeading  = []string{"NAMESPACE", "NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP"}
	wideHeading = append(podHeading[:len(podHeading):len(podHeading)], "NODE", "SOURCE", "PHASE", "UID", "WAITING FOR")
)

// podRow is one line of the table.
func podRow(p *api.Pod, now time.Time, wide bool) []string {
	s := summarize(p)
	restarts := strconv.Itoa(s.restarts)
	if s.restarts > 0 && !s.restartedAt.IsZero() {
		restarts += fmt.Sprintf(" (%s ago)", duration.HumanDuration(now.Sub(s.restartedAt)))
	}
	row := []string{
		p.Pod.Namespace, p.Pod.Name, fmt.Sprintf("%d/%d", s.ready, s.total), cli.Plain(s.status), restarts, age(p.Pod, now),
		cli.OrNone(podIP(p.Pod)),
	}
	if wide {
		row = append(row, cli.OrNone(p.Pod.Spec.NodeName), cli.OrNone(string(p.Source)), cli.OrNone(p.Phase), string(p.Pod.UID),
			cli.OrNone(waitingFor(p, now)))
	}
	return row
}

// PodLine is a pod in a few words, the same until it changes.
func PodLine(p *api.Pod) string {
	s := summarize(p)
	text := fmt.Sprintf("%s  %d/%d ready", cli.Plain(s.status), s.ready, s.total)
	if ip := podIP(p.Pod); ip != "" {
		text += "  " + ip
	}
	if s.restarts > 0 {
		text += fmt.Sprintf("  %d restarts", s.restarts)
	}
	if waits := waitingFor(p, time.Time{}); waits != "" {
		text += "  (" + waits + ")"
	}
	return text
}

// rowKey is what of a row makes a watch print it anew: all but what the passing of time changes.
func rowKey(p *api.Pod, wide bool) string {
	row := podRow(p, time.Time{}, false)
	row[4], row[5] = strconv.Itoa(summarize(p).restarts), ""
	if wide {
		row = append(row, p.Phase, waitingFor(p, time.Time{}))
	}
	return strings.Join(row, "\x00")
}

// waitingFor is the sentence on what keeps the pod from where it is going, with the times that belong to it unless now is zero;
// empty when nothing does.
func waitingFor(p *api.Pod, now time.Time) string {
	text := p.Cause
	if q := p.Quarantine; q != nil && !now.IsZero() && q.Until.After(now) {
		return cli.Plain(text + "; next try in " + duration.HumanDuration(q.Until.Sub(now)))
	}
	if r := p.Waiting; text != "" && r != nil {
		switch {
		case r.Permanent:
			text += "; trying again would not help"
		case now.IsZero() || !r.RetryAt.After(now):
		case r.Code == messages.ReasonKilling:
			text += "; killed in " + duration.HumanDuration(r.RetryAt.Sub(now))
		default:
			text += "; next try in " + duration.HumanDuration(r.RetryAt.Sub(now))
		}
		if !r.Since.IsZero() && !now.IsZero() {
			text += ", for " + duration.HumanDuration(max(now.Sub(r.Since), 0))
		}
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

func podIP(pod *v1.Pod) string {
	if len(pod.Status.PodIPs) > 0 {
		return pod.Status.PodIPs[0].IP
	}
	return pod.Status.PodIP
}
