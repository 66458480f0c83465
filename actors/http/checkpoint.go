package http

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/atomicfile"
	"github.com/playlet-dev/playlet/messages"
)

// checkpointVersion is the version of the shape of lastGood.
const checkpointVersion = 1

// lastGood is the last good wish, as it is kept on disk. Immutable.
type lastGood struct {
	// URL and NodeName are what it holds for. The file is for root alone, as a URL with a credential in it has to be.
	URL        string     `json:"url"`
	NodeName   string     `json:"nodeName"`
	Pods       []*v1.Pod  `json:"pods"`
	Validators validators `json:"validators"`
}

func checkpointPath(dir string) string { return filepath.Join(dir, "last-good.json") }

func save(dir string, g *lastGood) error {
	if err := atomicfile.MakeDir(dir); err != nil {
		return err
	}
	return atomicfile.Save(checkpointPath(dir), checkpointVersion, g)
}

// load reads what was kept for this URL and node; nil when that is nothing. An error is not a reason not to go on.
func load(opts Options) (*lastGood, error) {
	if opts.StateDir == "" {
		return nil, nil
	}
	g := new(lastGood)
	err := atomicfile.Load(checkpointPath(opts.StateDir), checkpointVersion, g)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case g.URL != opts.URL || g.NodeName != opts.NodeName:
		return nil, nil
	}
	bad := slices.IndexFunc(g.Pods, func(p *v1.Pod) bool { return p == nil || messages.CheckUID(string(p.UID)) != nil })
	if bad >= 0 {
		return nil, fmt.Errorf("entry %d of the checkpoint is no pod with a UID", bad)
	}
	return g, nil
}
