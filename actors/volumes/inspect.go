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
	Phase string            `json:"phase"`
	Paths map[string]string `json:"paths,omitempty"`
	// Troubles are by volume; that of the pod's folder has no name.
	Troubles map[string]troubleInspection `json:"troubles,omitempty"`
}

type troubleInspection struct {
	Reason   string     `json:"reason"`
	Attempts int        `json:"failedAttempts"`
	RetryAt  *time.Time `json:"retryAt,omitempty"`
}

// Inspect implements supervisors.Inspectable.
func (a *actor) Inspect() any {
	m := a.machine
	out := inspection{Pods: map[string]podInspection{}, Left: map[string]string{}, Busy: m.busy(), Waiting: m.waiting()}
	for uid, p := range m.pods {
		in := podInspection{Phase: string(p.phase), Paths: p.paths, Troubles: map[string]troubleInspection{}}
		for volume, t := range p.troubles {
			trouble := troubleInspection{Reason: t.message, Attempts: t.fails}
			if at := t.retryAt; !at.IsZero() {
				trouble.RetryAt = &at
			}
			in.Troubles[volume] = trouble
		}
		out.Pods[uid] = in
	}
	for uid, left := range m.left {
		out.Left[uid] = left
	}
	return out
}
