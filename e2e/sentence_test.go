//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/e2e/stack"
	corev1 "k8s.io/api/core/v1"
)

// situation is a problem and the beginning of its sentence. A quiet one has no Event: the pod has no problem, or is not alone
// with it.
type situation struct {
	cause string
	quiet bool
	or    string // another cause that is as good; or empty
}

func (s situation) begins(cause string) bool {
	return strings.HasPrefix(cause, s.cause) || s.or != "" && strings.HasPrefix(cause, s.or)
}

// prove awaits of each pod ("namespace/name") that "playlet pods" names its cause, that its explanation begins with that
// sentence, and that the last Event on a trouble of the pod has it, and gives how many were proved.
func prove(t *testing.T, a *stack.Agent, want map[string]situation) int {
	t.Helper()
	left, last, socket := maps.Clone(want), "", "--admin-socket="+a.AdminSocket
	var looks pause
	for p := (progress{}); p.goesOn(len(left)); looks.sleep() {
		out, notes, _ := playlet(t, "pods", "-A", socket)
		var events corev1.EventList
		text, _, _ := playlet(t, "events", "-A", "-o", "json", socket)
		_ = json.Unmarshal([]byte(text), &events)
		last = ""
		for _, name := range slices.Sorted(maps.Keys(left)) {
			if problem := proved(t, a, name, left[name], out+notes, events.Items); problem != "" {
				last += problem + "\n"
			} else {
				delete(left, name)
			}
		}
		if len(left) == 0 {
			return len(want)
		}
	}
	t.Fatalf("%d of %d stay so:\n%s", len(left), len(want), last)
	return 0
}

// proved returns "", or the difference from the expectation.
func proved(t *testing.T, a *stack.Agent, pod string, want situation, pods string, events []corev1.Event) string {
	t.Helper()
	namespace, name, _ := strings.Cut(pod, "/")
	var said []string
	for line := range strings.Lines(pods) {
		if rest, ok := strings.CutPrefix(line, pod+": "); ok && want.begins(rest) {
			said = append(said, strings.TrimSpace(rest))
		}
	}
	if len(said) == 0 {
		return pod + ": nothing begins with " + want.cause + ":\n" + linesWith(pods, pod)
	}
	var explained struct{ Items []struct{ Cause, UID string } } // as the page has it: two pods may have the name
	if err := a.Admin(t.Context(), "/v1/explain/pod/"+name+"?namespace="+namespace, &explained); err != nil {
		return pod + ": " + err.Error()
	}
	reported := ""
	for _, e := range explained.Items {
		reported = lastTrouble(events, e.UID)
		event := e.Cause
		if _, result, of := strings.Cut(e.Cause, " probe fails: "); of {
			event = result // the rest of the Event is in Kubernetes' words
		}
		if want.begins(e.Cause) && slices.ContainsFunc(said, func(s string) bool { return strings.HasPrefix(s, e.Cause) }) &&
			(want.quiet || strings.Contains(reported, event)) {
			t.Logf("%s: %s", pod, e.Cause)
			return ""
		}
	}
	return fmt.Sprintf("%s: pods: %q\n explain: %q\n event: %q", pod, said, explained.Items, reported)
}

func linesWith(text, words string) string {
	var out []string
	for line := range strings.Lines(text) {
		if strings.Contains(line, words) {
			out = append(out, line)
		}
	}
	return strings.Join(out, "")
}

// lastTrouble returns the last Event on a problem of a pod. Kubernetes reports some without a warning; a missing cluster DNS is
// another matter.
func lastTrouble(events []corev1.Event, uid string) string {
	var last corev1.Event
	for _, e := range events {
		if string(e.InvolvedObject.UID) != uid || e.Reason == "MissingClusterDNS" {
			continue
		}
		if (e.Type == corev1.EventTypeWarning || slices.Contains([]string{"Killing", "BackOff", "DeadlineExceeded"}, e.Reason)) &&
			!e.LastTimestamp.Before(&last.LastTimestamp) {
			last = e
		}
	}
	return last.Message
}
