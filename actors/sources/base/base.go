// Package base is shared by the sources of pods: reading a manifest, sending the desired pods, and keeping the last good
// version on disk.
package base

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/playlet-dev/playlet/actors/internal/manifest"
	"github.com/playlet-dev/playlet/actors/internal/podspec"
	"github.com/playlet-dev/playlet/actors/internal/problemlog"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// Node describes the node for which a source reads manifests.
type Node struct {
	NodeName string
	// Objects means that the node has its own ConfigMaps, Secrets and RuntimeClasses, to which pods may refer.
	Objects bool
	// Cluster means that the node has an API server with RuntimeClasses, to which pods may refer.
	Cluster bool
}

// Manifest returns the options for reading a manifest of a source.
func (n Node) Manifest(source string, now time.Time) manifest.Options {
	has := manifest.ObjectSources{Objects: n.Objects, Cluster: n.Cluster}
	return manifest.Options{NodeName: n.NodeName, Source: source, Has: has, Now: now}
}

// RefusedFields lists the rejected fields of pods, for the documentation.
func RefusedFields() []string { return podspec.Refused() }

// Problems converts a manifest's problems to those sent to the pods actor.
func Problems(found []manifest.Problem) []messages.ManifestProblem {
	var out []messages.ManifestProblem
	for _, p := range found {
		out = append(out, messages.ManifestProblem{Path: p.Path, Line: p.Line, Pod: p.Pod, Field: p.Field, Message: p.Message,
			Warning: p.Warning})
	}
	return out
}

// Split separates the problems that make a manifest unusable from the warnings.
func Split(all []messages.ManifestProblem) (faults, warnings []messages.ManifestProblem) {
	for _, p := range all {
		if p.Warning {
			warnings = append(warnings, p)
		} else {
			faults = append(faults, p)
		}
	}
	return faults, warnings
}

// KeepUnchanged returns the pods of a newer reading. An unchanged pod keeps its earlier object, with its first-seen time:
// receivers compare pointers.
func KeepUnchanged(before, now []*v1.Pod) []*v1.Pod {
	old := make(map[types.UID]*v1.Pod, len(before))
	for _, p := range before {
		old[p.UID] = p
	}
	out := slices.Clone(now)
	for i, p := range out {
		if was := old[p.UID]; was != nil && manifest.Same(was, p) {
			out[i] = was
		}
	}
	return out
}

// DesiredState is the desired state of a source. It belongs to the source's actor. The pods are immutable.
type DesiredState struct {
	// Known means that the desired pods are known. Until then Problems explain why they are not.
	Known    bool
	Pods     []*v1.Pod
	Problems []messages.ManifestProblem
	Graces   map[string]int64 // this and the following: see SourcePodsWanted; immutable
	Unread   []string
	Journal  string
	Names    map[string][]string
	// Manifests is immutable, too.
	Manifests map[string]string
	Stale     map[string]bool
	Gone      map[string]bool

	logged problemlog.Log
}

// Log logs new problems under the given title. When the last problem is gone it logs mended, unless that is empty.
func (d *DesiredState) Log(ctx supervisors.Context, what, mended string) {
	if d.logged.Report(ctx.Log(), what, d.Problems) && !d.logged.Any() && mended != "" {
		ctx.Log().Info(mended)
	}
}

// Send sends the desired pods, or the problems that keep them unknown, to the pods actor. It sends nothing before either is
// known.
func (d *DesiredState) Send(ctx supervisors.Context) {
	if d.Known || len(d.Problems) > 0 {
		ctx.Tell(messages.Pods, messages.SourcePodsWanted{Source: ctx.Self(), Pods: d.Pods, Problems: d.Problems,
			Graces: d.Graces, Unknown: !d.Known, Unread: d.Unread, Journal: d.Journal, UnreadNames: d.Names,
			Manifests: d.Manifests, Stale: d.Stale, Gone: d.Gone})
	}
}

// Inspection is the part of an inspection that all sources share.
type Inspection struct {
	Heard    bool                       `json:"heard"` // whether the desired pods are known
	Pods     []string                   `json:"pods"`
	Problems []messages.ManifestProblem `json:"problems,omitempty"`
}

// Inspect returns the source's part of an inspection.
func (d *DesiredState) Inspect() Inspection {
	in := Inspection{Heard: d.Known, Pods: []string{}, Problems: slices.Clone(d.Problems)}
	for _, p := range d.Pods {
		in.Pods = append(in.Pods, p.Namespace+"/"+p.Name)
	}
	return in
}
