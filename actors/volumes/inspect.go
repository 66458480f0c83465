package volumes

import "time"

// inspection is what the actor says of itself.
type inspection struct {
	Pods    map[string]podInspection `json:"pods,omitempty"`
	Busy    int                      `json:"busy"`    // operations under way
	Waiting int                      `json:"waiting"` // operations that wait for a place
	// Left is why a folder that nobody wants is still there, by UID.
	Left map[string]string `json:"left,omitempty"`
}

type podInspection struct {
	Phase    string            `json:"phase"`
	Paths    map[string]string `json:"paths,omitempty"`
	Failures []string          `json:"failures,omitempty"`
	Attempts int               `json:"failedAttempts,omitempty"`
	RetryAt  *time.Time        `json:"retryAt,omitempty"`
}

// Inspect implements supervisors.Inspectable.
func (a *actor) Inspect() any {
	m := a.machine
	out := inspection{Pods: map[string]podInspection{}, Left: map[string]string{}, Busy: m.busy, Waiting: len(m.queue)}
	for uid, p := range m.pods {
		in := podInspection{Phase: string(p.phase), Paths: p.paths, Attempts: p.fails}
		for _, f := range p.failures {
			in.Failures = append(in.Failures, f.volume+": "+f.message)
		}
		if !p.retryAt.IsZero() {
			at := p.retryAt
			in.RetryAt = &at
		}
		out.Pods[uid] = in
	}
	for uid, left := range m.left {
		out.Left[uid] = left
	}
	return out
}
