package agent

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/messages"
)

// quiet lists causes without an Event: there is no failure, or it is not the pod's.
var quiet = []string{
	" is still running, and the others wait for it to finish", "has not finished yet", "has not succeeded yet", // it only takes its time
	" probe fails: ", // the Event has the result, in Kubernetes' words
	"the container runtime does not answer: ",
}

// troubles lists the Events that report a failure without being warnings.
var troubles = []string{messages.EventKilling, messages.EventBackOff, messages.EventDeadlineExceeded}

// notTroubles are warnings of something else.
var notTroubles = []string{"DNSConfigForming", "MissingClusterDNS"}

// oneSentence waits until the cause of a pod in "playlet pods" begins so. That cause must begin with the cause in "playlet
// explain", which the pod's last Event about a failure must contain, too.
func (r *rig) oneSentence(name, begins string) {
	r.t.Helper()
	var said, explained, reported string
	limit := waitLimit
	if r.t.Failed() { // the others are shown, too, before long
		limit /= 30
	}
	for deadline := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
		said, explained, reported = r.sentence(name)
		reported, silent := reported, slices.ContainsFunc(quiet, func(q string) bool { return strings.Contains(said, q) })
		if strings.HasPrefix(said, begins) && explained != "" && strings.HasPrefix(said, explained) && (silent || strings.Contains(reported, explained)) {
			return
		}
		if time.Now().After(deadline) {
			break
		}
	}
	r.t.Errorf("%s: it should begin with %q:\npods:    %s\nexplain: %s\nevent:   %s", name, begins, said, explained, reported)
}

// sentence returns the cause in "playlet pods", the cause in "playlet explain", and the message of the last Event about a
// failure.
func (r *rig) sentence(name string) (said, explained, reported string) {
	var explanations api.Explanations
	var events v1.EventList
	for args, into := range map[string]any{"explain " + name: &explanations, "events " + name: &events} {
		out, _, _ := r.playlet(append(strings.Fields(args), "-o", "json")...)
		_ = json.Unmarshal([]byte(out), into)
	}
	out, notes, _ := r.playlet("pods")
	for line := range strings.Lines(out + notes) {
		for _, of := range []string{"default/" + name + ": ", "default/" + name + "-node: "} {
			if rest, ok := strings.CutPrefix(line, of); ok {
				said = strings.TrimSpace(rest)
			}
		}
	}
	if len(explanations.Items) == 1 {
		explained = explanations.Items[0].Cause
	}
	return said, explained, lastTrouble(events.Items)
}

// lastTrouble returns the message of the last event about a failure.
func lastTrouble(events []v1.Event) string {
	var last v1.Event
	for _, e := range events {
		if slices.Contains(notTroubles, e.Reason) {
			continue
		}
		if e.Type == v1.EventTypeWarning || slices.Contains(troubles, e.Reason) {
			if !e.LastTimestamp.Before(&last.LastTimestamp) {
				last = e
			}
		}
	}
	return cmp.Or(last.Message, "none")
}
