package config

import (
	"maps"
	"slices"

	featuregates "github.com/playlet-dev/playlet/config/gates"
)

// Feature is one feature gate of Kubernetes 1.36.
type Feature struct {
	Name  string
	Stage string // "alpha", "beta", "deprecated", or empty: it is generally available
	On    bool
}

// Features gives all gates as they stand, in no order.
func (n *Node) Features() []Feature {
	out := make([]Feature, 0, len(n.gates))
	for name, on := range n.gates {
		stage := featuregates.Known()[name].Stage
		if stage == featuregates.Stable {
			stage = ""
		}
		out = append(out, Feature{name, string(stage), on})
	}
	return out
}

// resolveGates returns the state of every known gate with those in set. A gate that Kubernetes once had is warned
// about and without effect; a name it never had, or a gate that can no longer be changed, is an error.
func resolveGates(set map[string]bool) (map[string]bool, []Warning, error) {
	var warnings []Warning
	var bad problems
	for _, name := range slices.Sorted(maps.Keys(set)) {
		path := "featureGates." + name
		g, found := featuregates.Known()[name]
		switch {
		case found && g.Locked && set[name] != g.On:
			bad.add(path, set[name], "the feature is %s and locked to %t", g.Stage, g.On)
		case !found && featuregates.Retired(name):
			warnings = append(warnings, Warning{Flag: path,
				Message: "ignored: Kubernetes has retired this feature gate; remove it"})
		case !found:
			bad.add(path, set[name], "no such feature gate")
		}
	}
	if err := bad.err(); err != nil {
		return nil, nil, err
	}
	return featuregates.Resolve(set), warnings, nil
}
