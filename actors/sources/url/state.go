package url

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/playlet-dev/playlet/actors/sources/base"
	"github.com/playlet-dev/playlet/messages"
)

// validators make a request conditional (RFC 9110, 13.1). They are from the last good answer.
type validators struct {
	ETag         string `json:"etag,omitempty"`
	LastModified string `json:"lastModified,omitempty"`
}

// state is the known desired state of the URL. Immutable.
type state struct {
	loaded     bool
	hollow     bool // only empty answers are known: pods of an earlier agent may run
	confirmed  bool // by an answer since the agent started; otherwise the pods are from the disk
	pods       []*v1.Pod
	warnings   []messages.ManifestProblem // of these pods
	validators validators
	problems   []messages.ManifestProblem
	askedAt    time.Time
	answer     string
}

// fetchResult is the result of a request.
type fetchResult struct {
	at         time.Time
	answer     string // the HTTP status
	same       bool   // not modified since the validators
	empty      bool   // it has no content
	failure    string // the reason why there is no manifest; "" if there is one
	pods       []*v1.Pod
	problems   []messages.ManifestProblem
	validators validators
}

// after returns the state after an answer, and whether the state on disk must change. It is pure. An answer with any bad part
// leaves the whole last good answer in force. The validators stay too, so that the bad answer is read again. An empty answer is
// bad unless no pod depends on it.
func (s state) after(m fetchResult, shown string) (next state, changed bool) {
	next = s
	next.askedAt, next.answer = m.at, m.answer
	problems := m.problems
	switch {
	case m.failure != "":
		problems = []messages.ManifestProblem{{Path: shown, Message: m.failure}}
	case m.empty && (!s.loaded || s.hollow || len(s.pods) > 0):
		next.loaded, next.hollow = true, s.hollow || !s.loaded
		problems = []messages.ManifestProblem{{Path: shown,
			Message: "the answer is empty; an empty list (items: []) ends the pods"}}
	case m.same:
		next.problems, next.confirmed = s.warnings, true
		return next, false
	default:
		problems = append(slices.Clone(problems), rivals(m.pods, shown)...)
	}
	faults, warnings := base.Split(problems)
	if len(faults) > 0 {
		next.problems = slices.Clone(problems)
		for i := range next.problems {
			next.problems[i].KeptLast = len(s.pods) > 0 && !next.problems[i].Warning
		}
		return next, false
	}
	next.problems, next.warnings, next.validators = warnings, warnings, m.validators
	next.loaded, next.hollow, next.confirmed = true, false, true
	next.pods = base.KeepUnchanged(s.pods, m.pods)
	// New validators for the same pods do not justify a write at each check. Those on disk belong to the same pods, and cost
	// one full answer after a restart.
	return next, !s.loaded || !slices.Equal(next.pods, s.pods) || !slices.Equal(next.warnings, s.warnings)
}

// rivals returns problems for pods with another pod's UID. The manifest's own checks cover the names.
func rivals(pods []*v1.Pod, shown string) []messages.ManifestProblem {
	var out []messages.ManifestProblem
	seen := map[types.UID]*v1.Pod{}
	for _, p := range pods {
		if first := seen[p.UID]; first != nil {
			out = append(out, messages.ManifestProblem{
				Path: shown, Pod: p.Namespace + "/" + p.Name, Field: "metadata.uid",
				Message: fmt.Sprintf("pod %s/%s has the same UID, %s", first.Namespace, first.Name, p.UID),
			})
			continue
		}
		seen[p.UID] = p
	}
	return out
}

// lastGood is the checkpoint: the last good answer. Immutable.
type lastGood struct {
	// URL and NodeName limit its validity. Only root may read the file, as a URL may contain a credential.
	URL        string     `json:"url"`
	NodeName   string     `json:"nodeName"`
	Pods       []*v1.Pod  `json:"pods"`
	Validators validators `json:"validators"`
	// Warnings are from the same answer: a "not modified" answer does not repeat it.
	Warnings []messages.ManifestProblem `json:"warnings,omitempty"`
	// Gone are the UIDs of pods that left the manifest and may still run.
	Gone []string `json:"gone,omitempty"`
}

// load reads the checkpoint for this URL and node; nil if there is none. The caller can continue after an error.
func load(opts Options) (*lastGood, error) {
	g := new(lastGood)
	found, err := base.Load(opts.StateDir, g)
	if !found || g.URL != opts.URL || g.NodeName != opts.Node.NodeName {
		return nil, err
	}
	bad := slices.IndexFunc(g.Pods, func(p *v1.Pod) bool { return p == nil || messages.CheckUID(string(p.UID)) != nil })
	if bad >= 0 {
		return nil, fmt.Errorf("entry %d of the checkpoint is not a pod with a UID", bad)
	}
	return g, nil
}
