package explain

import (
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/messages"
)

// maxEvent is the maximum length of an Event's note in the API, in bytes.
const maxEvent = 1024

// Event returns the message of an Event: Kubernetes' own words, by which others look for it, and the sentence that explains it.
// Where one contains the other, it stands alone; of a sentence with several clauses, a first clause that the words contain is
// left out. Words that leave too little room for the sentence are cut.
func Event(words, sentence string) string {
	if sentence = messages.Shorten(sentence, maxEvent); words == "" {
		return sentence
	}
	if strings.Contains(messages.Shorten(words, maxEvent), sentence) {
		return messages.Shorten(words, maxEvent)
	}
	if strings.Contains(sentence, strings.TrimSpace(words)) {
		return sentence
	}
	const between = "; "
	if first, rest, several := strings.Cut(sentence, between); several && strings.Contains(words, first) &&
		len(words)+len(between)+len(rest) <= maxEvent {
		sentence = rest
	}
	room := maxEvent - len(between) - len(sentence)
	if room < len(between) {
		return sentence
	}
	return messages.Shorten(words, room) + between + sentence
}

// EventOf is Event with the sentence on the reason for which the pod waits, or one of its containers.
func EventOf(words string, pod *v1.Pod, r messages.Reason) string {
	if pod == nil || r.Code == messages.ReasonUnhealthy { // the words have the probe and its result
		return messages.Shorten(words, maxEvent)
	}
	return Event(words, Waits(pod, &v1.PodStatus{}, r))
}

// Stopping returns the reason for which a container is ended, for logs and the pod's state.
func Stopping(container string, why messages.Cause) string {
	text := ""
	switch why.Code {
	case messages.CauseProbeFailed:
		text = "failed " + why.Name + " probe"
		if why.Detail == string(v1.RestartPolicyNever) {
			return "Container " + container + " " + text
		}
	case messages.CauseOutdated:
		text = "definition changed"
	case messages.CauseResized:
		text = "resize requires restart"
	case messages.CauseRenewed:
		return "Restarting container " + container + ", as requested"
	case messages.CauseStateUnknown:
		return `Container is in "unknown" state, try killing it before restart`
	case messages.CauseAllRestarted:
		return "Container " + container + ": " + why.Text + ", all will be restarted"
	case messages.CausePostStart:
		return messages.EventFailedPostStartHook + ": " + why.Text
	default:
		return why.Text
	}
	return "Container " + container + " " + text + ", will be restarted"
}

// Killing returns the words of the Event Killing, which Kubernetes' suites match. The output of a hook may hold secrets and is
// left out.
func Killing(container string, why messages.Cause) string {
	switch why.Code {
	case "":
		return "Stopping container " + container
	case messages.CausePostStart:
		return messages.EventFailedPostStartHook
	default:
		return Stopping(container, why)
	}
}

// Ended is the sentence on a container that has ended and is not started again.
func Ended(pod *v1.Pod, container string, t *v1.ContainerStateTerminated) string {
	f := Finding{Container: container}
	view{pod: pod, is: &v1.PodStatus{}}.end(&f, t, false)
	return f.Cause
}

// Ending begins the sentence on a pod that ends.
func Ending(why string) string { return "the pod is ending because " + why }
