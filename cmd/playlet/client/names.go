package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/actors/sources/submit"
)

const namespaceUsage = "The pod's `namespace`; not needed where only one pod has this name"

// podName is how a person names a pod. An empty namespace is any.
type podName struct{ namespace, name string }

// parsePodName reads a pod's name as it is printed anywhere: web, pod/web, default/web, pod/default/web. The namespace is the
// flag's.
func parsePodName(namespace, arg string) (podName, error) {
	parts := strings.Split(arg, "/")
	if len(parts) > 1 && slices.Contains([]string{"pod", "pods", "po"}, parts[0]) {
		parts = parts[1:]
	}
	if len(parts) > 2 || slices.Contains(parts, "") {
		return podName{}, fmt.Errorf("%q names no pod; write NAME, pod/NAME or NAMESPACE/NAME", arg)
	}
	n := podName{namespace, parts[len(parts)-1]}
	if len(parts) == 2 {
		if namespace != "" && namespace != parts[0] {
			return podName{}, fmt.Errorf("%q is in namespace %q, and -n names %q", arg, parts[0], namespace)
		}
		n.namespace = parts[0]
	}
	return n, nil
}

// String says which pod is meant.
func (n podName) String() string {
	if n.namespace == "" {
		return fmt.Sprintf("%q in any namespace", n.name)
	}
	return fmt.Sprintf("%q in namespace %q", n.name, n.namespace)
}

// choose gives the pods of this name. Where none is called so, the name may be that in the manifest of a static pod, to which the
// node's name was appended.
func (n podName) choose(pods []api.Pod) []api.Pod {
	var exact, short []api.Pod
	for _, p := range pods {
		switch {
		case n.namespace != "" && p.Pod.Namespace != n.namespace:
		case p.Pod.Name == n.name:
			exact = append(exact, p)
		case inManifest(n.name, p.Pod):
			short = append(short, p)
		}
	}
	if len(exact) == 0 {
		return short
	}
	return exact
}

// inManifest says whether a static pod's name in its manifest is this: the node's name was appended to it.
func inManifest(name string, p *v1.Pod) bool {
	return p.Name == submit.StaticName(name, p.Spec.NodeName)
}

// matches says whether the name may mean this pod; choose looks at others, too.
func (n podName) matches(namespace, name, node string) bool {
	return (n.namespace == "" || n.namespace == namespace) && (name == n.name || name == submit.StaticName(n.name, node))
}

// one is the pod that is meant. Of an old and a new one of a name it is the one that runs; the other is named in the note.
func (n podName) one(pods []api.Pod) (pod *api.Pod, note string, err error) {
	found, notes := meant(n.choose(pods))
	switch {
	case len(found) == 0:
		return nil, "", fmt.Errorf("there is no pod %s (playlet pods lists them)", n)
	case len(found) > 1:
		return nil, "", ambiguous(found)
	}
	return &found[0], strings.Join(notes, "; "), nil
}

func ambiguous(found []api.Pod) error {
	var names []string
	for i := range found {
		names = append(names, fullName(&found[i]))
	}
	return fmt.Errorf("several pods have this name: %s; -n names the namespace", strings.Join(names, ", "))
}

// meant leaves one pod of each full name, the one that is rather meant, and names the others in notes.
func meant(pods []api.Pod) (kept []api.Pod, notes []string) {
	pods = slices.Clone(pods)
	slices.SortStableFunc(pods, func(x, y api.Pod) int {
		if byName := strings.Compare(fullName(&x), fullName(&y)); byName != 0 {
			return byName
		}
		return rank(&x) - rank(&y)
	})
	for i := range pods {
		p := &pods[i]
		if len(kept) == 0 || fullName(&kept[len(kept)-1]) != fullName(p) {
			kept = append(kept, *p)
			continue
		}
		first := &kept[len(kept)-1]
		notes = append(notes, fmt.Sprintf("pod %s is the one with UID %s, which %s; another of this name (UID %s) %s",
			fullName(p), first.Pod.UID, doing(first), p.Pod.UID, doing(p)))
	}
	return kept, notes
}

// podSet are the pods that a command is about: by name, by label, or all.
type podSet struct {
	namespace, selector string
	all                 bool
	names               []podName
	labels              labels.Selector
}

// addFlags adds -n, -A and -l, and the completion of names.
func (s *podSet) addFlags(cmd *cobra.Command, socket *string) {
	s.addNames(cmd, socket)
	cmd.Flags().StringVarP(&s.selector, "selector", "l", "", "Only pods whose labels match, as `app=web,tier!=test`")
}

// addNames is addFlags without -l.
func (s *podSet) addNames(cmd *cobra.Command, socket *string) {
	cmd.Flags().StringVarP(&s.namespace, "namespace", "n", "", "Only pods of this `namespace`; any when empty")
	cmd.Flags().BoolVarP(&s.all, "all-namespaces", "A", false, "Pods of all namespaces, as without -n")
	cmd.MarkFlagsMutuallyExclusive("namespace", "all-namespaces")
	cmd.ValidArgsFunction = completePods(socket, &s.namespace, true)
	if err := cmd.RegisterFlagCompletionFunc("namespace", completeNamespaces(socket)); err != nil {
		panic(err) // the flag was added a moment ago
	}
}

// settle takes the arguments.
func (s *podSet) settle(args []string) (err error) {
	if len(args) > 0 && s.selector != "" {
		return errors.New("pods are chosen by name or by label (-l), not by both")
	}
	if s.labels, err = labels.Parse(s.selector); err != nil {
		return fmt.Errorf("--selector=%s: write it as app=web,tier!=test", s.selector)
	}
	for _, arg := range args {
		name, err := parsePodName(s.namespace, arg)
		if err != nil {
			return err
		}
		s.names = append(s.names, name)
	}
	return nil
}

// filter is what the agent is asked for.
func (s *podSet) filter() api.Filter {
	if len(s.names) == 1 {
		return api.Filter{Namespace: s.names[0].namespace}
	}
	return api.Filter{Namespace: s.namespace}
}

// mayMean says whether a pod of this name, which may be that in a manifest, is among them.
func (s *podSet) mayMean(namespace, name, node string) bool {
	if len(s.names) == 0 {
		return s.namespace == "" || s.namespace == namespace
	}
	return slices.ContainsFunc(s.names, func(n podName) bool { return n.matches(namespace, name, node) })
}

func (s *podSet) matches(p *api.Pod) bool {
	return s.mayMean(p.Pod.Namespace, p.Pod.Name, p.Pod.Spec.NodeName) &&
		(s.labels == nil || s.labels.Matches(labels.Set(p.Pod.Labels)))
}

// choose gives the pods in the order in which they were named. The error names those that are not there.
func (s *podSet) choose(pods []api.Pod) ([]api.Pod, error) {
	if len(s.names) == 0 {
		return slices.DeleteFunc(slices.Clone(pods), func(p api.Pod) bool { return !s.matches(&p) }), nil
	}
	var out []api.Pod
	var errs []error
	for _, n := range s.names {
		found := n.choose(pods)
		if len(found) == 0 {
			errs = append(errs, fmt.Errorf("there is no pod %s", n))
		}
		for _, p := range found {
			if !slices.ContainsFunc(out, func(q api.Pod) bool { return q.Pod.UID == p.Pod.UID }) {
				out = append(out, p)
			}
		}
	}
	return out, errors.Join(errs...)
}

func fullName(p *api.Pod) string { return p.Pod.Namespace + "/" + p.Pod.Name }

// rank is lower for the pod that is rather meant: one that runs, then one that is wanted.
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
	s := &p.Pod.Status
	for _, list := range [][]v1.ContainerStatus{s.ContainerStatuses, s.InitContainerStatuses} {
		if slices.ContainsFunc(list, func(c v1.ContainerStatus) bool { return c.State.Running != nil }) {
			return true
		}
	}
	return false
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

// findPod asks the agent for the pod that is meant. What is worth saying of the choice goes to note.
func findPod(ctx context.Context, client *api.Client, namespace, arg string, note func(string)) (*api.Pod, error) {
	name, err := parsePodName(namespace, arg)
	if err != nil {
		return nil, err
	}
	all, err := client.Pods(ctx, api.Filter{Namespace: name.namespace})
	if err != nil {
		return nil, err
	}
	pod, text, err := name.one(all.Pods)
	if text != "" {
		note(text)
	}
	return pod, err
}
