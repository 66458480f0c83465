package config

import (
	"maps"
	"slices"
	"strings"
	"sync"
)

// gate is what Kubernetes 1.36 knows about one feature.
type gate struct {
	stage  gateStage
	on     bool
	locked bool
}

type gateStage string

const (
	alpha      gateStage = "alpha"
	beta       gateStage = "beta"
	stable     gateStage = "GA"
	deprecated gateStage = "deprecated"
)

// gateGroup is a set of gates, separated by white space, that are alike.
type gateGroup struct {
	gate
	names string
}

// The two gates that set all gates of a stage which nobody set by name.
const (
	allAlpha = "AllAlpha"
	allBeta  = "AllBeta"
)

var knownGates = sync.OnceValue(func() map[string]gate {
	known := map[string]gate{allAlpha: {stage: alpha}, allBeta: {stage: beta}}
	for _, group := range gateGroups {
		for name := range strings.FieldsSeq(group.names) {
			known[name] = group.gate
		}
	}
	return known
})

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
		stage := string(knownGates()[name].stage)
		if stage == string(stable) {
			stage = ""
		}
		out = append(out, Feature{name, stage, on})
	}
	return out
}

// resolveGates returns the state of every known gate with those in set. A gate that Kubernetes once had is warned
// about and without effect; a name it never had, or a gate that can no longer be changed, is an error.
func resolveGates(set map[string]bool) (map[string]bool, []Warning, error) {
	known := knownGates()
	var warnings []Warning
	var bad problems
	for _, name := range slices.Sorted(maps.Keys(set)) {
		path := "featureGates." + name
		g, found := known[name]
		switch {
		case found && g.locked && set[name] != g.on:
			bad.add(path, set[name], "the feature is %s and locked to %t", g.stage, g.on)
		case !found && slices.Contains(strings.Fields(retiredGateNames), name):
			warnings = append(warnings, Warning{Flag: path,
				Message: "ignored: Kubernetes has retired this feature gate; remove it"})
		case !found:
			bad.add(path, set[name], "no such feature gate")
		}
	}
	if err := bad.err(); err != nil {
		return nil, nil, err
	}
	resolved := make(map[string]bool, len(known))
	for name, g := range known {
		resolved[name] = g.on
		if all, said := set[allAlpha]; said && g.stage == alpha {
			resolved[name] = all
		}
		if all, said := set[allBeta]; said && g.stage == beta {
			resolved[name] = all
		}
		if own, said := set[name]; said {
			resolved[name] = own
		}
	}
	return resolved, warnings, nil
}

// mergeGates lays the gates of the command line over those of the files.
func mergeGates(files, line map[string]bool) map[string]bool {
	merged := map[string]bool{}
	maps.Copy(merged, files)
	maps.Copy(merged, line)
	return merged
}
