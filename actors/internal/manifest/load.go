// Package manifest reads the pods of a manifest: YAML or JSON, one or several documents, each a Pod or a list of Pods.
//
// [Load] is the whole way from bytes to pods that can run; [Decode] and [Static] are its first two steps. All are pure
// functions, safe for concurrent use. A fault is a [Problem] with file, line and field, and affects its own pod only: a bad
// document never hides the good ones beside it.
package manifest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/playlet-dev/playlet/actors/internal/podspec"
)

// Load reads the pods of a manifest for a node without an API server: it decodes, makes static, defaults and validates them.
// pods are the valid pods in the order of the file. problems are the faults of the other documents, and all warnings.
//
// Unknown and repeated fields are warnings in a manifest from a file or a URL, because a kubelet ignores them. In a submission
// they are faults: the submitter can correct them at once.
//
// A problem without a Pod means that a document is too broken to identify its pod. A caller that keeps the last good version of
// each pod should then keep all pods that are missing from the new version of the file.
func Load(path string, data []byte, opts Options) (pods []*v1.Pod, problems []Problem) {
	for _, one := range LoadEach(path, data, opts) {
		if one.Pod != nil {
			pods = append(pods, one.Pod)
		}
		problems = append(problems, one.Problems...)
	}
	return pods, problems
}

// Empty reports whether a manifest has no content at all, or is JSON's null. Such a manifest was cut off, and does not remove its
// pods or objects. An empty list removes them.
func Empty(data []byte) bool {
	data = bytes.TrimSpace(bytes.TrimPrefix(data, []byte("\ufeff")))
	return len(data) == 0 || string(data) == "null"
}

// LoadResult is the result of one document of a manifest: a pod, perhaps with warnings, or else problems.
type LoadResult struct {
	Pod      *v1.Pod
	Problems []Problem
}

// LoadEach is Load with its results by document, in the order of the file.
func LoadEach(path string, data []byte, opts Options) (out []LoadResult) {
	seen := map[string]bool{}
	for _, document := range Decode(path, data) {
		out = append(out, document.load(opts, seen))
	}
	limitProblems(out, false)
	limitProblems(out, true)
	return out
}

// limitProblems limits the problems of documents without pods, or the warnings of those with pods. The last listed one counts the
// others. It names no pod, so that callers keep the last good versions of all.
func limitProblems(out []LoadResult, warnings bool) {
	listed, more, first := 0, 0, -1
	for i, one := range out {
		n := len(one.Problems)
		switch {
		case n == 0 || (one.Pod != nil) != warnings:
		case listed < maxFileProblems:
			listed += n
		default:
			if more += n; first < 0 {
				first = i
			} else {
				out[i].Problems = nil
			}
		}
	}
	if first >= 0 {
		out[first].Problems = []Problem{notListed(out[first].Problems[0], more)}
	}
}

// load makes the pod of a document; seen has namespace/name of the pods before it in the file.
func (d *Document) load(opts Options, seen map[string]bool) LoadResult {
	l := &loader{document: d, opts: opts, seen: seen}
	pod := l.load()
	if pod == nil { // then the ignored fields are faults, since no pod runs without them
		for i := range l.problems {
			l.problems[i].Warning = false
		}
	}
	slices.SortStableFunc(l.problems, func(a, b Problem) int { return a.Line - b.Line })
	return LoadResult{pod, l.problems}
}

// loader is the state of one document's loading.
type loader struct {
	document   *Document
	opts       Options
	seen       map[string]bool
	problems   []Problem
	unreported int // problems beyond maxProblems
}

// load returns the pod, or nil if there are faults.
func (l *loader) load() *v1.Pod {
	for _, problem := range slices.Concat(l.document.Problems, l.document.Warnings) {
		problem.Pod, problem.Warning = l.pod(), problem.Warning && !l.strict()
		l.problems = append(l.problems, problem)
	}
	if l.document.Pod == nil || l.strict() && len(l.problems) > 0 {
		return nil
	}
	nameIsWrong := l.checkName()
	pod := Static(l.document.Pod, l.document.path, l.opts)
	podspec.Default(pod)
	var blamed []string
	report := func(errs field.ErrorList) {
		before := blamed
		for _, err := range errs {
			if slices.ContainsFunc(before, func(one string) bool { return isWithin(one, err.Field) }) {
				continue
			}
			blamed = append(blamed, err.Field)
			if !nameIsWrong || err.Field != "metadata.name" {
				l.report(err, false)
			}
		}
	}
	// A check may report several faults of a field. Later checks do not report that field again. Unsupported fields come first,
	// since their author cannot correct them.
	report(podspec.ValidateStatic(pod, l.opts.Has))
	if l.strict() {
		report(podspec.StaticWarnings(pod))
	}
	report(podspec.Unsupported(pod))
	report(podspec.Validate(pod))
	if l.unreported > 0 {
		l.problems = append(l.problems, Problem{
			Path: l.document.path, Line: l.document.Line(""), Pod: l.pod(),
			Message: fmt.Sprintf("has %d more problems", l.unreported),
		})
	}
	if slices.ContainsFunc(l.problems, func(p Problem) bool { return !p.Warning }) {
		return nil
	}
	for _, err := range podspec.StaticWarnings(pod) {
		l.report(err, true)
	}
	return pod
}

// strict reports whether the fields that a kubelet ignores are faults.
func (l *loader) strict() bool { return l.opts.Source == SubmitSource }

// checkName checks the author's name, which Static replaces: its form, that the file has it once, and that the pod does not claim
// to be a mirror pod.
func (l *loader) checkName() (wrong bool) {
	meta, at := &l.document.Pod.ObjectMeta, field.NewPath("metadata")
	if meta.Name == "" {
		l.report(field.Required(at.Child("name"), ""), false)
		return true
	}
	for _, message := range apivalidation.NameIsDNSSubdomain(meta.Name, false) {
		l.report(field.Invalid(at.Child("name"), meta.Name, message), false)
		wrong = true
	}
	if _, mirror := meta.Annotations[v1.MirrorPodAnnotationKey]; mirror {
		l.report(field.Forbidden(at.Child("annotations").Key(v1.MirrorPodAnnotationKey), "only the agent may set it"), false)
	}
	if l.seen[l.pod()] {
		l.report(field.Duplicate(at.Child("name"), meta.Name), false)
		wrong = true
	}
	l.seen[l.pod()] = true
	return wrong
}

func (l *loader) report(err *field.Error, warning bool) {
	if len(l.problems) == maxProblems {
		l.unreported++
		return
	}
	d, message := l.document, err.ErrorBody()
	if warning {
		message = err.Detail
	}
	l.problems = append(l.problems, Problem{
		Path: d.path, Line: d.Line(err.Field), Pod: l.pod(), Field: d.pathOf(err.Field), Message: message, Warning: warning,
	})
}

// pod returns namespace/name of the pod as it would run, or "" if the document has no name.
func (l *loader) pod() string {
	if l.document.name == "" {
		return ""
	}
	namespace := l.document.namespace
	if namespace == "" {
		namespace = v1.NamespaceDefault
	}
	return namespace + "/" + StaticName(l.document.name, l.opts.NodeName)
}

// isWithin reports whether a field equals another or lies in it.
func isWithin(inner, outer string) bool {
	rest, ok := strings.CutPrefix(inner, outer)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}
