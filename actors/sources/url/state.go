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

// validators are what makes a request conditional (RFC 9110, 13.1): they are those of the answer that was good last.
type validators struct {
	ETag         string `json:"etag,omitempty"`
	LastModified string `json:"lastModified,omitempty"`
}

// state is the known desired state of the URL. Immutable.
type state struct {
	heard      bool
	confirmed  bool // by an answer since the agent started; otherwise the pods are from the disk
	pods       []*v1.Pod
	warnings   []messages.ManifestProblem // of these pods
	validators validators
	problems   []messages.ManifestProblem
	askedAt    time.Time
	answer     string
}

// fetched is the one result of a request.
type fetched struct {
	at         time.Time
	answer     string // the HTTP status
	same       bool   // the server says that nothing has changed since the validators
	failure    string // why there is no manifest; "" when there is one
	pods       []*v1.Pod
	problems   []messages.ManifestProblem
	validators validators
}

// after is the state after an answer, and whether what is to be kept on disk changed. It is pure. An answer that is bad
// in any part leaves the last good answer in force as a whole, and its validators too, so that it is read again.
func (s state) after(m fetched, shown string) (next state, changed bool) {
	next = s
	next.askedAt, next.answer = m.at, m.answer
	problems := m.problems
	switch {
	case m.failure != "":
		problems = []messages.ManifestProblem{{Path: shown, Message: m.failure}}
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
	next.heard, next.confirmed = true, true
	next.pods = base.KeepUnchanged(s.pods, m.pods)
	// Other validators of the same pods are not worth a write at each check: those on disk are of these pods too, and cost one
	// whole answer after a restart.
	return next, !s.heard || !slices.Equal(next.pods, s.pods) || !slices.Equal(next.warnings, s.warnings)
}

// rivals are problems of pods that have the UID of another; names are the manifest's own to check.
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

// lastGood is the last good answer, as it is kept on disk. Immutable.
type lastGood struct {
	// URL and NodeName are what it holds for. The file is for root alone, as a URL with a credential in it has to be.
	URL        string     `json:"url"`
	NodeName   string     `json:"nodeName"`
	Pods       []*v1.Pod  `json:"pods"`
	Validators validators `json:"validators"`
	// Warnings are from the same answer: a server that answers "unchanged" does not send it again.
	Warnings []messages.ManifestProblem `json:"warnings,omitempty"`
	// Gone are the UIDs of pods that left the manifest and may still run.
	Gone []string `json:"gone,omitempty"`
}

// load reads what was kept for this URL and node; nil when that is nothing. An error is not a reason not to go on.
func load(opts Options) (*lastGood, error) {
	g := new(lastGood)
	found, err := base.Load(opts.StateDir, g)
	if !found || g.URL != opts.URL || g.NodeName != opts.Node.NodeName {
		return nil, err
	}
	bad := slices.IndexFunc(g.Pods, func(p *v1.Pod) bool { return p == nil || messages.CheckUID(string(p.UID)) != nil })
	if bad >= 0 {
		return nil, fmt.Errorf("entry %d of the checkpoint is no pod with a UID", bad)
	}
	return g, nil
}
