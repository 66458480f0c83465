package file

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/manifest"
	"github.com/playlet-dev/playlet/messages"
)

// claim is a pod and the manifest that named it first.
type claim struct {
	pod  *v1.Pod
	path string
}

// claims are the names and UIDs of pods that are taken.
type claims map[string]*claim

func keysOf(pod *v1.Pod) []string { return []string{pod.Namespace + "/" + pod.Name, string(pod.UID)} }

// rival is who has the pod's name or UID already, if anybody.
func (c claims) rival(pod *v1.Pod) *claim {
	for _, key := range keysOf(pod) {
		if r := c[key]; r != nil {
			return r
		}
	}
	return nil
}

// claim takes the pod's name and UID, which nobody has.
func (c claims) claim(pod *v1.Pod, path string) {
	for _, key := range keysOf(pod) {
		c[key] = &claim{pod, path}
	}
}

// desired returns the pods of all manifests, from the documents in force, by file name. Of two pods with the same name or UID,
// one is returned and the other is a problem. The file that holds the name keeps it; holders maps full pod names to paths.
// Otherwise the first file gets it. A file that seems to be gone yields to any other without a problem, as its pod has most
// likely moved there. It stays the holder until its absence is confirmed. The pods of a withheld file are left out, and no other
// file gets their names. The new holders are returned, too.
func desired(files map[string]*entry, holders map[string]string) ([]*v1.Pod, []messages.ManifestProblem, map[string]string) {
	sorted := byPath(files)
	taken := claims{}
	wanted := make(map[*v1.Pod]bool, len(sorted))
	lost, now := map[*entry][]messages.ManifestProblem{}, map[string]string{}
	claim := func(vanishing, holding bool) {
		for _, m := range sorted {
			if m.vanishing() != vanishing {
				continue
			}
			for _, d := range m.documents {
				name := d.Pod.Namespace + "/" + d.Pod.Name
				if holding != (holders[name] == m.path) || wanted[d.Pod] {
					continue
				}
				if r := taken.rival(d.Pod); r == nil {
					taken.claim(d.Pod, m.path)
					wanted[d.Pod], now[name] = true, m.path
				} else if !vanishing {
					lost[m] = append(lost[m], rivalry(m.path, d.Pod, r))
				}
			}
		}
	}
	claim(false, true)
	claim(false, false)
	claim(true, true)
	claim(true, false)
	for name, path := range holders {
		if m := files[path]; m != nil && (m.vanishing() || m.withheld) {
			now[name] = path
		}
	}
	var pods []*v1.Pod
	var problems []messages.ManifestProblem
	for _, m := range sorted {
		for _, d := range m.documents {
			if wanted[d.Pod] && !m.withheld {
				pods = append(pods, d.Pod)
			}
		}
		for _, p := range m.problems {
			problems = append(problems, p.ManifestProblem)
		}
		problems = append(problems, lost[m]...)
	}
	return pods, problems, now
}

// unread lists the manifests that cannot be used at present, and the UIDs of the pods in force that the present files do not
// confirm.
func unread(files map[string]*entry) (paths []string, stale map[string]bool) {
	stale = map[string]bool{}
	for _, m := range byPath(files) {
		if m.faulty() || !m.settled && m.trial != nil && m.trial.grade != gone {
			paths = append(paths, m.path)
		}
		for _, d := range m.documents {
			if (m.faulty() || !m.settled) && (m.last == nil || !slices.Contains(podsOf(m.last.documents), d.Pod)) {
				stale[string(d.Pod.UID)] = true
			}
		}
	}
	return paths, stale
}

// uidsOf returns the UIDs of the pods in force.
func uidsOf(files map[string]*entry) map[string]bool {
	out := map[string]bool{}
	for _, m := range files {
		for _, d := range m.documents {
			out[string(d.Pod.UID)] = true
		}
	}
	return out
}

func byPath(files map[string]*entry) []*entry {
	return slices.SortedFunc(maps.Values(files), func(a, b *entry) int { return cmp.Compare(a.path, b.path) })
}

func (m *entry) vanishing() bool { return m.trial != nil && m.trial.grade == gone }

func rivalry(path string, pod *v1.Pod, first *claim) messages.ManifestProblem {
	what, field := fmt.Sprintf("a pod %s/%s", pod.Namespace, pod.Name), "metadata.name"
	if first.pod.Name != pod.Name || first.pod.Namespace != pod.Namespace {
		what = fmt.Sprintf("a pod with the UID %s, %s/%s", pod.UID, first.pod.Namespace, first.pod.Name)
		field = "metadata.uid"
	}
	where := "by " + first.path + " already"
	if first.path == path {
		where = "earlier in this file"
	}
	return messages.ManifestProblem{
		Path: path, Pod: pod.Namespace + "/" + pod.Name, Field: field,
		Message: fmt.Sprintf("%s is named %s: this one is left out", what, where),
	}
}

// retain decides what is in force of a manifest that has problems: the documents that are good, and of each that is
// not, the last good version. That one is found by the name of its pod; where the name is not known or not to be
// found, by its place in the manifest, if that has as many documents as it had. A document without a name that is not found
// by its place either leaves it open which one it was: then all that the manifest named before, and does not name now,
// stay.
func retain(last, now version) version {
	named := claims{}
	for _, d := range now.documents {
		named.claim(d.Pod, "")
	}
	samePlaces := last.count == now.count
	left := slices.DeleteFunc(slices.Clone(last.documents), func(d document) bool { return named.rival(d.Pod) != nil })
	stays := map[*v1.Pod]bool{}
	out := version{problems: slices.Clone(now.problems), count: now.count}
	for i, p := range out.problems {
		if p.Warning {
			continue
		}
		for _, d := range meant(left, p, samePlaces) {
			stays[d.Pod] = true
			out.problems[i].KeptLast = true
		}
	}
	out.documents = slices.Clone(now.documents)
	for _, d := range left {
		if !samePlaces {
			d.Index = -1 // the places of old documents mean nothing among the new ones
		}
		if stays[d.Pod] {
			out.documents = append(out.documents, d)
		}
	}
	slices.SortStableFunc(out.documents, func(a, b document) int { return a.Index - b.Index })
	return out
}

// meant lists which of the old documents a problem can be about.
func meant(left []document, p problem, samePlaces bool) []document {
	if i := slices.IndexFunc(left, func(d document) bool { return named(d.Pod, p.Pod) }); i >= 0 {
		return left[i : i+1]
	}
	there := slices.IndexFunc(left, func(d document) bool { return d.Index == p.document })
	switch {
	case samePlaces && p.document >= 0 && there >= 0:
		return left[there : there+1]
	case p.Pod != "":
		return nil
	}
	return left
}

// named says whether a problem's name for a pod, as its manifest has it, with or without namespace, is that of a pod
// whose name has the node's appended.
func named(pod *v1.Pod, name string) bool {
	if namespace, rest, ok := strings.Cut(name, "/"); ok {
		if namespace != pod.Namespace {
			return false
		}
		name = rest
	}
	if pod.Name == name {
		return true
	}
	return pod.Spec.NodeName != "" && pod.Name == manifest.StaticName(name, pod.Spec.NodeName)
}
