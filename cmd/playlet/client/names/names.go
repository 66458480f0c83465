// Package names selects pods by the names that a user gives, and completes those names.
package names

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/actors/sources/submit"
	"github.com/playlet-dev/playlet/config/configfile"
)

// Pod is how a person names a pod. An empty namespace is any.
type Pod struct{ Namespace, Name string }

// kinds are words for a pod, before its name.
var kinds = []string{"pod", "pods", "po"}

// Parse reads a pod's name as it is printed anywhere: web, pod/web, default/web, pod/default/web. The namespace is the
// flag's.
func Parse(namespace, arg string) (Pod, error) {
	parts := strings.Split(arg, "/")
	if len(parts) > 1 && slices.Contains(kinds, parts[0]) {
		parts = parts[1:]
	}
	if len(parts) > 2 || slices.Contains(parts, "") {
		return Pod{}, fmt.Errorf("%q names no pod; write NAME, pod/NAME or NAMESPACE/NAME", arg)
	}
	n := Pod{namespace, parts[len(parts)-1]}
	if len(parts) == 2 {
		if namespace != "" && namespace != parts[0] {
			return Pod{}, fmt.Errorf("%q is in namespace %q, and -n names %q", arg, parts[0], namespace)
		}
		n.Namespace = parts[0]
	}
	return n, nil
}

// String returns the name as the user would write it.
func (n Pod) String() string {
	if n.Namespace == "" {
		return fmt.Sprintf("%q in any namespace", n.Name)
	}
	return fmt.Sprintf("%q in namespace %q", n.Name, n.Namespace)
}

// Choose gives the pods of this name. Where none is called so, the name may be that in the manifest of a static pod, to which the
// node's name was appended.
func (n Pod) Choose(pods []api.Pod) []api.Pod {
	var exact, short []api.Pod
	for _, p := range pods {
		switch {
		case n.Namespace != "" && p.Pod.Namespace != n.Namespace:
		case p.Pod.Name == n.Name:
			exact = append(exact, p)
		case p.Pod.Name == submit.StaticName(n.Name, p.Pod.Spec.NodeName):
			short = append(short, p)
		}
	}
	if len(exact) == 0 {
		return short
	}
	return exact
}

// matches reports whether the name may match this pod. Choose compares with the other pods, too.
func (n Pod) matches(namespace, name, node string) bool {
	return (n.Namespace == "" || n.Namespace == namespace) && (name == n.Name || name == submit.StaticName(n.Name, node))
}

// One is the pod that is meant by an argument; the namespace is the flag's.
func One(namespace, arg string, pods []api.Pod) (pod *api.Pod, notes []string, err error) {
	name, err := Parse(namespace, arg)
	if err != nil {
		return nil, nil, err
	}
	return name.One(pods)
}

// One is the pod that is meant. Of an old and a new one of a name it is the one that runs; the others are named in the notes.
func (n Pod) One(pods []api.Pod) (pod *api.Pod, notes []string, err error) {
	found, notes := Meant(n.Choose(pods))
	switch {
	case len(found) == 0:
		return nil, nil, Absent(pods, n)
	case len(found) > 1:
		return nil, nil, Ambiguous(found)
	}
	return &found[0], notes, nil
}

// Absent returns the error of names that none of the pods has, with similar names of pods. It is nil without names.
func Absent(pods []api.Pod, names ...Pod) error {
	if len(names) == 0 {
		return nil
	}
	var parts []string
	for _, n := range names {
		part := fmt.Sprintf("there is no pod %s", n)
		hint := n.hint()
		if similar := n.similar(pods); similar != "" && hint == "" {
			hint = "; did you mean " + similar + "?"
		}
		part += hint
		parts = append(parts, part)
	}
	return errors.New(strings.Join(parts, "; ") + " (playlet pods lists them)")
}

// otherKinds are words that kubectl takes before the name of an object that has pods.
var otherKinds = []string{"deployment", "deployments", "deploy", "daemonset", "daemonsets", "ds", "statefulset", "statefulsets",
	"sts", "replicaset", "replicasets", "rs", "job", "jobs", "service", "services", "svc"}

// hint returns the next step where an absent pod's name has the form of another object's.
func (n Pod) hint() string {
	switch {
	case n.Namespace == "node" || n.Namespace == "nodes" || n.Namespace == "" && n.Name == "node":
		return "; of the node itself, see playlet explain node"
	case slices.Contains(otherKinds, n.Namespace):
		return "; a node has pods alone: name one of those of " + n.Namespace + "/" + n.Name
	}
	return ""
}

// similar returns the NAMESPACE/NAME of the pod whose name is most like n, also in another namespace, or "".
func (n Pod) similar(pods []api.Pod) string {
	full := map[string]string{}
	for _, p := range pods {
		short := strings.TrimSuffix(p.Pod.Name, submit.StaticName("", p.Pod.Spec.NodeName))
		full[p.Pod.Name], full[short] = Full(&p), p.Pod.Namespace+"/"+short
	}
	return full[configfile.Closest(n.Name, slices.Collect(maps.Keys(full)))]
}

// Ambiguous is the error where one pod is meant and several were found.
func Ambiguous(found []api.Pod) error {
	var names []string
	for i := range found {
		names = append(names, Full(&found[i]))
	}
	return fmt.Errorf("several pods have this name: %s; -n names the namespace", strings.Join(names, ", "))
}

// Meant leaves one pod of each full name, the one that is rather meant, and names the others in notes.
func Meant(pods []api.Pod) (kept []api.Pod, notes []string) {
	pods = slices.Clone(pods)
	slices.SortStableFunc(pods, func(x, y api.Pod) int {
		if byName := strings.Compare(Full(&x), Full(&y)); byName != 0 {
			return byName
		}
		return rank(&x) - rank(&y)
	})
	for i := range pods {
		p := &pods[i]
		if len(kept) == 0 || Full(&kept[len(kept)-1]) != Full(p) {
			kept = append(kept, *p)
			continue
		}
		first := &kept[len(kept)-1]
		notes = append(notes, fmt.Sprintf("pod %s is the one with UID %s, which %s; another of this name (UID %s) %s",
			Full(p), first.Pod.UID, doing(first), p.Pod.UID, doing(p)))
	}
	return kept, notes
}

// Set are the pods that a command is about: by name, by label, or all.
type Set struct {
	Namespace, Selector string
	all                 bool
	Names               []Pod
	Labels              labels.Selector
	fields              string // a selector
	fieldSelector       fields.Selector
}

// AddFlags adds -n, -A and -l, and the completion of names.
func (s *Set) AddFlags(cmd *cobra.Command, socket *string) {
	s.AddNames(cmd, socket)
	cmd.Flags().StringVarP(&s.Selector, "selector", "l", "", "Only pods whose labels match this `selector`, such as app=web,tier!=test")
}

// AddFields adds --field-selector.
func (s *Set) AddFields(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.fields, "field-selector", "",
		"Only pods whose fields match this `selector`, such as status.phase=Running,metadata.namespace!=kube-system")
}

// podFields returns the fields of a pod that a field selector can use, as in the API server.
func podFields(p *v1.Pod) fields.Set {
	return fields.Set{
		"metadata.name": p.Name, "metadata.namespace": p.Namespace, "spec.nodeName": p.Spec.NodeName,
		"spec.restartPolicy": string(p.Spec.RestartPolicy), "spec.serviceAccountName": p.Spec.ServiceAccountName,
		"spec.hostNetwork": strconv.FormatBool(p.Spec.HostNetwork), "status.phase": string(p.Status.Phase),
		"status.podIP": p.Status.PodIP,
	}
}

// parseFields reads --field-selector, which may name the fields of podFields.
func parseFields(text string) (fields.Selector, error) {
	selector, err := fields.ParseSelector(text)
	if err != nil {
		return nil, fmt.Errorf("--field-selector=%s: write it as status.phase=Running,metadata.namespace!=kube-system", text)
	}
	known := podFields(&v1.Pod{})
	for _, r := range selector.Requirements() {
		if !known.Has(r.Field) {
			return nil, fmt.Errorf("--field-selector=%s: pods are not chosen by %q; there are %s", text, r.Field,
				strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
	}
	return selector, nil
}

// AddNames is AddFlags without -l.
func (s *Set) AddNames(cmd *cobra.Command, socket *string) {
	AddNamespaceFlag(cmd, &s.Namespace, socket, "Only pods of this `namespace`; of all if empty")
	cmd.Flags().BoolVarP(&s.all, "all-namespaces", "A", false, "Pods of all namespaces, as without -n")
	cmd.MarkFlagsMutuallyExclusive("namespace", "all-namespaces")
	cmd.ValidArgsFunction = CompletePods(socket, &s.Namespace, true)
}

// Some is Settle of a command that is about no pod unless one is named or chosen by its labels.
func (s *Set) Some(cmd *cobra.Command, args []string) error {
	if len(args) == 0 && s.Selector == "" {
		return NoPod(cmd)
	}
	return s.Settle(cmd, args)
}

// NoPod returns the error of a command without the name of a pod.
func NoPod(cmd *cobra.Command) error {
	return fmt.Errorf("which pod? (playlet pods lists them; %s --help shows examples)", cmd.CommandPath())
}

// Settle takes the arguments.
func (s *Set) Settle(_ *cobra.Command, args []string) (err error) {
	switch {
	case len(args) > 0 && s.Selector != "":
		return errors.New("pods are chosen by name or by label (-l), not by both")
	case len(args) > 0 && s.fields != "":
		return errors.New("pods are chosen by name or by field (--field-selector), not by both")
	}
	if s.fieldSelector, err = parseFields(s.fields); err != nil {
		return err
	}
	if s.Labels, err = labels.Parse(s.Selector); err != nil {
		return fmt.Errorf("--selector=%s: write it as app=web,tier!=test", s.Selector)
	}
	if len(args) > 1 && slices.Contains(kinds, args[0]) { // as kubectl has it: describe pod web
		args = args[1:]
	}
	for _, arg := range args {
		name, err := Parse(s.Namespace, arg)
		if err != nil {
			return err
		}
		s.Names = append(s.Names, name)
	}
	return nil
}

// Filter returns the filter of the request to the agent.
func (s *Set) Filter() api.Filter {
	if len(s.Names) == 1 {
		return api.Filter{Namespace: s.Names[0].Namespace}
	}
	return api.Filter{Namespace: s.Namespace}
}

// MayMean reports whether a pod of this name, which may be the name in a manifest, is in the set.
func (s *Set) MayMean(namespace, name, node string) bool {
	if len(s.Names) == 0 {
		return s.Namespace == "" || s.Namespace == namespace
	}
	return slices.ContainsFunc(s.Names, func(n Pod) bool { return n.matches(namespace, name, node) })
}

// Matches reports whether a pod is in the set.
func (s *Set) Matches(p *api.Pod) bool {
	return s.MayMean(p.Pod.Namespace, p.Pod.Name, p.Pod.Spec.NodeName) &&
		(s.Labels == nil || s.Labels.Matches(labels.Set(p.Pod.Labels))) &&
		(s.fieldSelector == nil || s.fieldSelector.Matches(podFields(p.Pod)))
}

// Choose gives the pods in the order in which they were named. The error names those that are not there.
func (s *Set) Choose(pods []api.Pod) ([]api.Pod, error) {
	if len(s.Names) == 0 {
		return slices.DeleteFunc(slices.Clone(pods), func(p api.Pod) bool { return !s.Matches(&p) }), nil
	}
	var out []api.Pod
	var missing []Pod
	for _, n := range s.Names {
		found := n.Choose(pods)
		if len(found) == 0 {
			missing = append(missing, n)
		}
		for _, p := range found {
			if !slices.ContainsFunc(out, func(q api.Pod) bool { return q.Pod.UID == p.Pod.UID }) {
				out = append(out, p)
			}
		}
	}
	return out, Absent(pods, missing...)
}

// Full is a name that no other pod has meanwhile: NAMESPACE/NAME.
func Full(p *api.Pod) string { return p.Pod.Namespace + "/" + p.Pod.Name }

// rank is lower for the more likely pod: first a running one, then a desired one.
func rank(p *api.Pod) int {
	switch {
	case runsNow(p):
		return 0
	case p.Ending == "":
		return 1
	}
	return 2
}

func runsNow(p *api.Pod) bool {
	all := slices.Concat(p.Pod.Status.ContainerStatuses, p.Pod.Status.InitContainerStatuses)
	return slices.ContainsFunc(all, func(c v1.ContainerStatus) bool { return c.State.Running != nil })
}

// Containers are all of a pod: those for its beginning, those that are to stay, and those that were added later.
func Containers(p *v1.Pod) []v1.Container {
	all := slices.Concat(p.Spec.InitContainers, p.Spec.Containers)
	for i := range p.Spec.EphemeralContainers {
		all = append(all, v1.Container(p.Spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
	return all
}

func doing(p *api.Pod) string {
	switch {
	case p.Ending != "" && runsNow(p):
		return "runs and is being ended"
	case p.Ending != "":
		return "is being ended"
	case runsNow(p):
		return "runs"
	}
	return "has not begun"
}
