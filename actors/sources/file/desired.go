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

// claims are the pod names and UIDs in use.
type claims map[string]*claim

func keysOf(pod *v1.Pod) []string { return []string{pod.Namespace + "/" + pod.Name, string(pod.UID)} }

// rival returns the claim that has the pod's name or UID, or nil.
func (c claims) rival(pod *v1.Pod) *claim {
	for _, key := range keysOf(pod) {
		if r := c[key]; r != nil {
			return r
		}
	}
	return nil
}

// claim records the pod's name and UID, which must be free.
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

// unread lists the manifests that are unusable at present, and the UIDs of pods in force that the present files do not
// confirm.
func unread(files map[string]*entry) (paths []string, stale map[string]bool) {
	stale = map[string]bool{}
	for _, m := range byPath(files) {
		if m.faulty() || !m.accepted && m.pending != nil && m.pending.state != fileMissing {
			paths = append(paths, m.path)
		}
		for _, d := range m.documents {
			if (m.faulty() || !m.accepted) && (m.last == nil || !slices.Contains(podsOf(m.last.documents), d.Pod)) {
				stale[string(d.Pod.UID)] = true
			}
		}
	}
	return paths, stale
}

// namesOf returns the names of the pods of unread manifests, by path, without the node's name. It omits a manifest of which any
// name is unknown or invalid: that may be the name of any pod.
func namesOf(files map[string]*entry, unread []string, node string) map[string][]string {
	out := map[string][]string{}
	for _, path := range unread {
		m := files[path]
		if m == nil || !m.accepted || m.pending != nil {
			continue
		}
		names := map[string]bool{}
		for _, d := range m.documents {
			names[strings.TrimSuffix(d.Pod.Namespace+"/"+d.Pod.Name, manifest.StaticName("", node))] = true
		}
		for _, p := range m.problems {
			if strings.Contains(p.Pod, "/") && !strings.Contains(p.Field, "metadata.name") {
				names[strings.TrimSuffix(p.Pod, manifest.StaticName("", node))] = true
			} else if !p.Warning {
				names = nil
				break
			}
		}
		if names != nil {
			out[path] = slices.Sorted(maps.Keys(names))
		}
	}
	return out
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

func (m *entry) vanishing() bool { return m.pending != nil && m.pending.state == fileMissing }

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

// retain returns the version in force of a manifest with problems: the good documents, and the last good version of each bad
// one. That version is found by its pod's name. If the name is unknown or not found, it is found by the document's place,
// provided the number of documents is the same. If neither identifies it, any earlier document may be meant. All earlier pods
// that the manifest no longer names then stay.
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
			d.Index = -1 // old places are meaningless among the new documents
		}
		if stays[d.Pod] {
			out.documents = append(out.documents, d)
		}
	}
	slices.SortStableFunc(out.documents, func(a, b document) int { return a.Index - b.Index })
	return out
}

// meant returns the old documents to which a problem can refer.
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

// named reports whether a problem's pod name refers to pod. The name is the manifest's, with or without namespace; the node's
// name is appended to the pod's.
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
