// Package gates knows the feature gates of Kubernetes 1.36, and those that Kubernetes had before.
//
// k8s.io/component-base/featuregate is not used. The kubelet's gates are in no library, so that the tables would remain. It
// also reports only one unknown gate, in random order, while this package reports all, and a retired gate is only a warning.
package gates

import (
	"maps"
	"slices"
	"strings"
	"sync"
)

// Gate is the state of one feature in Kubernetes 1.36.
type Gate struct {
	Stage  Stage
	On     bool // by default
	Locked bool // it cannot be changed
}

// Stage is how far a feature has come.
type Stage string

// The stages.
const (
	Alpha      Stage = "alpha"
	Beta       Stage = "beta"
	Stable     Stage = "GA"
	Deprecated Stage = "deprecated"
)

// group is a set of gates, separated by white space, that are alike.
type group struct {
	Gate
	names string
}

// The two gates that set all gates of a stage, except those set by name.
const (
	AllAlpha = "AllAlpha"
	AllBeta  = "AllBeta"
)

// Known gives all gates by name. The map is shared, and not to be changed.
var Known = sync.OnceValue(func() map[string]Gate {
	known := map[string]Gate{AllAlpha: {Stage: Alpha}, AllBeta: {Stage: Beta}}
	for _, g := range groups {
		for name := range strings.FieldsSeq(g.names) {
			known[name] = g.Gate
		}
	}
	return known
})

// Retired reports whether an earlier Kubernetes had the gate.
func Retired(name string) bool { return slices.Contains(strings.Fields(retired), name) }

// Resolve gives the state of every known gate with those in set.
func Resolve(set map[string]bool) map[string]bool {
	resolved := make(map[string]bool, len(Known()))
	for name, g := range Known() {
		resolved[name] = g.On
		if all, said := set[AllAlpha]; said && g.Stage == Alpha {
			resolved[name] = all
		}
		if all, said := set[AllBeta]; said && g.Stage == Beta {
			resolved[name] = all
		}
		if own, said := set[name]; said {
			resolved[name] = own
		}
	}
	return resolved
}

// Merge returns the gates of both maps; above takes precedence, e.g. the command line over a file.
func Merge(below, above map[string]bool) map[string]bool {
	merged := map[string]bool{}
	maps.Copy(merged, below)
	maps.Copy(merged, above)
	return merged
}
