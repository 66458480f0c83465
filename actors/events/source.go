package events

import (
	"cmp"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record/util"

	"github.com/playlet-dev/playlet/messages"
)

// component is the reporting component. Clients select a node's events by the kubelet's name.
const component = "kubelet"

// maxMessage is the length of a message, in bytes, beyond which it is cut.
const maxMessage = 2 << 10

// source makes events.
type source struct {
	node string
	last int64 // of the last name
}

// event returns the API's form of a requested event.
func (s *source) event(now time.Time, m messages.RecordEvent) *v1.Event {
	t := metav1.NewTime(m.At)
	if m.At.IsZero() {
		t = metav1.NewTime(now)
	}
	namespace := cmp.Or(m.Object.Namespace, metav1.NamespaceDefault) // a node has none
	s.last = max(s.last+1, now.UnixNano())                           // two of one moment have names of their own
	return &v1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: util.GenerateEventName(m.Object.Name, s.last),
			Annotations: m.Annotations},
		InvolvedObject: m.Object,
		Type:           m.Type, Reason: m.Reason, Message: cut(m.Message),
		FirstTimestamp: t, LastTimestamp: t, Count: 1,
		Source: v1.EventSource{Component: component, Host: s.node},
	}
}

// cut bounds a message.
func cut(text string) string {
	if len(text) > maxMessage {
		text = text[:maxMessage]
	}
	return strings.ToValidUTF8(text, "")
}

// clock is the correlator's clock: the time of the present message. Durations use the monotonic clock, which clock changes do
// not affect.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }

func (c *clock) Since(t time.Time) time.Duration { return c.now.Sub(t) }
