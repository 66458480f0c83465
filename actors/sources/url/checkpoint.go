package url

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/sources/base"
	"github.com/playlet-dev/playlet/messages"
)

// lastGood is the last good answer, as it is kept on disk. Immutable.
type lastGood struct {
	// URL and NodeName are what it holds for. The file is for root alone, as a URL with a credential in it has to be.
	URL        string     `json:"url"`
	NodeName   string     `json:"nodeName"`
	Pods       []*v1.Pod  `json:"pods"`
	Validators validators `json:"validators"`
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
