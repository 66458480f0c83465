// Package base is what the sources of pods share: how a manifest is read, how what is wanted is sent to pods, and how the last
// good version is kept on the disk.
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

// Node is what a source has to know of the node to read manifests for it.
type Node struct {
	NodeName string
	// Objects says that the node has ConfigMaps, Secrets and RuntimeClasses of its own, so that pods may refer to them.
	Objects bool
	// Cluster says that it has an API server, to whose RuntimeClasses they may refer.
	Cluster bool
}

// Manifest are the options to read a manifest of a source with.
func (n Node) Manifest(source string, now time.Time) manifest.Options {
	has := manifest.Has{Objects: n.Objects, Cluster: n.Cluster}
	return manifest.Options{NodeName: n.NodeName, Source: source, Has: has, Now: now}
}

// RefusedFields lists the fields of pods that are refused, for the documentation.
func RefusedFields() []string { return podspec.Refused() }

// NoUserNamespaces explains why pods with hostUsers: false are refused, for the documentation.
const NoUserNamespaces = podspec.NoUserNamespaces

// Problems are those of a manifest as pods is told of them.
func Problems(found []manifest.Problem) []messages.ManifestProblem {
	var out []messages.ManifestProblem
	for _, p := range found {
		out = append(out, messages.ManifestProblem{Path: p.Path, Line: p.Line, Pod: p.Pod, Field: p.Field, Message: p.Message,
			Warning: p.Warning})
	}
	return out
}

// Split returns the problems that keep a manifest from being used, and the warnings.
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

// KeepUnchanged gives the pods of a newer reading. Those that say the same as before are the objects of before, with the time at
// which they were seen first: receivers compare pointers.
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

// Desired is all that a source wants. It belongs to the source's actor. The pods are immutable.
type Desired struct {
	// Known says that the source has learned what is wanted. Until then Problems say what keeps it from that.
	Known    bool
	Pods     []*v1.Pod
	Problems []messages.ManifestProblem
	Graces   map[string]int64 // this and the rest: see SourcePodsWanted; immutable
	Unread   []string
	Stale    map[string]bool
	Gone     map[string]bool

	logged problemlog.Log
}

// Log logs the problems that it did not log before, as what; when the last one is gone it logs mended, unless that is empty.
func (d *Desired) Log(ctx supervisors.Context, what, mended string) {
	if d.logged.Report(ctx.Log(), what, d.Problems) && !d.logged.Any() && mended != "" {
		ctx.Log().Info(mended)
	}
}

// Send sends pods what is wanted, or what keeps that from being known. Before either is known it sends nothing.
func (d *Desired) Send(ctx supervisors.Context) {
	if d.Known || len(d.Problems) > 0 {
		ctx.Tell(messages.Pods, messages.SourcePodsWanted{Source: ctx.Self(), Pods: d.Pods, Problems: d.Problems,
			Graces: d.Graces, Unknown: !d.Known, Unread: d.Unread, Stale: d.Stale, Gone: d.Gone})
	}
}

// Inspection is what every source says of itself.
type Inspection struct {
	Heard    bool                       `json:"heard"` // whether it is known what is wanted
	Pods     []string                   `json:"pods"`
	Problems []messages.ManifestProblem `json:"problems,omitempty"`
}

// Inspect is the source's part of an inspection.
func (d *Desired) Inspect() Inspection {
	in := Inspection{Heard: d.Known, Pods: []string{}, Problems: slices.Clone(d.Problems)}
	for _, p := range d.Pods {
		in.Pods = append(in.Pods, p.Namespace+"/"+p.Name)
	}
	return in
}
