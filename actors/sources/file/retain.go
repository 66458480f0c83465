package file

import (
	"bytes"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/manifest"
	"github.com/playlet-dev/playlet/messages"
)

// shape is where the documents of a manifest begin: the line of each, from 1. Empty documents do not count.
type shape []int

// shapeOf finds the documents of a manifest by the lines that separate them in YAML. JSON counts as one. Where a
// document may be a list, of which nobody can say how many pods it names, the shape is nil: not known.
func shapeOf(data []byte) shape {
	if bytes.Contains(data, []byte("List")) {
		return nil
	}
	var out shape
	begin, empty, line := 1, true, 0
	for text := range bytes.Lines(data) {
		line++
		text = bytes.TrimRight(text, " \t\r\n")
		mark := text[:min(3, len(text))]
		if isMark := len(text) <= 3 || text[3] == ' ' || text[3] == '\t'; isMark &&
			(string(mark) == "---" || string(mark) == "...") {
			if !empty {
				out = append(out, begin)
			}
			begin, empty, text = line, true, text[3:]
		}
		switch trimmed := bytes.TrimSpace(text); {
		case len(trimmed) == 0, trimmed[0] == '#', trimmed[0] == '%':
		default:
			empty = false
		}
	}
	if !empty {
		out = append(out, begin)
	}
	return out
}

// at is which document a line belongs to; -1 when that is not known.
func (s shape) at(line int) int {
	if line <= 0 {
		return -1
	}
	i, found := slices.BinarySearch(s, line)
	if !found {
		i--
	}
	return i
}

// assemble joins the pods that were parsed from a manifest with the documents that they come from: those that have no
// problem, in order, if it adds up.
func assemble(pods []*v1.Pod, problems []messages.ManifestProblem, s shape) version {
	v := version{shape: s, problems: problems}
	bad, known := map[int]bool{}, true
	for _, p := range problems {
		i := s.at(p.Line)
		bad[i] = true
		known = known && i >= 0
	}
	known = known && len(pods)+len(bad) == len(s)
	next := 0
	for _, pod := range pods {
		for bad[next] {
			next++
		}
		d := document{Pod: pod, Index: -1}
		if known {
			d.Index = next
		}
		next++
		v.documents = append(v.documents, d)
	}
	return v
}

// retain decides what is in force of a manifest that has problems: the documents that are good, and of each that is
// not, the last good version. That one is found by the name of its pod; where the name is not known or not to be
// found, by its place in the manifest, if that has as many documents as it had. A document without a name that is not found
// by its place either leaves it open which one it was: then all that the manifest named before, and does not name now,
// stay.
func retain(last []document, was shape, now version) ([]document, shape, []messages.ManifestProblem) {
	var named claims
	for _, d := range now.documents {
		named.claim(d.Pod, "")
	}
	left := slices.DeleteFunc(slices.Clone(last), func(d document) bool { return named.rival(d.Pod) != nil })
	stays := map[*v1.Pod]bool{}
	problems := slices.Clone(now.problems)
	for i := range problems {
		for _, d := range meant(left, problems[i], was, now.shape) {
			stays[d.Pod] = true
			problems[i].KeptLast = true
		}
	}
	left = slices.DeleteFunc(left, func(d document) bool { return !stays[d.Pod] })
	if len(left) == 0 {
		return now.documents, now.shape, problems
	}
	out := slices.Concat(now.documents, left)
	if len(was) != len(now.shape) {
		// The places of old documents mean nothing among the new ones.
		for i := len(now.documents); i < len(out); i++ {
			out[i].Index = -1
		}
	}
	slices.SortStableFunc(out, func(a, b document) int { return a.Index - b.Index })
	return out, now.shape, problems
}

// meant lists which of the old documents a problem can be about.
func meant(left []document, p messages.ManifestProblem, was, is shape) []document {
	if p.Pod != "" {
		for i, d := range left {
			if named(d.Pod, p.Pod) {
				return left[i : i+1]
			}
		}
	}
	if index := is.at(p.Line); index >= 0 && len(was) == len(is) {
		for i, d := range left {
			if d.Index == index {
				return left[i : i+1]
			}
		}
	}
	if p.Pod != "" {
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
