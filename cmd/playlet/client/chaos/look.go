package chaos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cmd/playlet/cli"
	"github.com/playlet-dev/playlet/cmd/playlet/client/actors"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// readyPods returns the containers of each ready pod by name, each with a value that changes when it restarts. The status of the
// unknown pods is not available yet, after a restart of their actor and of the one that publishes it.
func readyPods(all *api.Pods) (out map[string]map[string]string, unknown map[string]bool) {
	out, unknown = map[string]map[string]string{}, map[string]bool{}
	for i := range all.Pods {
		p := all.Pods[i].Pod
		unknown[p.Namespace+"/"+p.Name] = true
		for _, condition := range p.Status.Conditions {
			if condition.Type != v1.PodReady {
				continue
			}
			delete(unknown, p.Namespace+"/"+p.Name)
			if condition.Status != v1.ConditionTrue {
				continue
			}
			containers := map[string]string{}
			for _, s := range p.Status.ContainerStatuses {
				containers[s.Name] = fmt.Sprintf("%s, restart %d", s.ContainerID, s.RestartCount)
			}
			out[p.Namespace+"/"+p.Name] = containers
		}
	}
	return out, unknown
}

// baseline records the state before the experiment.
func (c *chaosRun) baseline(ctx context.Context) error {
	all, err := c.Client.Pods(ctx, api.Filter{})
	if err != nil {
		return err
	}
	actors, err := c.Client.Actors(ctx)
	if err != nil {
		return err
	}
	version, err := c.Client.Version(ctx)
	if err != nil {
		return err
	}
	if err := c.leaks.begin(ctx, all, version.RootDir); err != nil {
		fmt.Fprintln(c.Out, "remaining sandboxes, containers and folders of removed pods are not checked:", messages.OneLine(err))
	}
	c.before, _ = readyPods(all)
	c.goroutines = actors.Goroutines
	c.report.Pods = len(c.before)
	for _, containers := range c.before {
		c.report.Containers += len(containers)
	}
	if want := c.experiment.Spec.Steady.Pods; len(c.before) < want {
		return fmt.Errorf("the node is not steady, and nothing was done: the experiment needs %s to be ready, and has %d",
			cli.Count(want, "pod"), len(c.before))
	}
	err = errors.Join(c.look(ctx, true), c.command(ctx))
	if n := len(c.report.Violations); n > 0 {
		err = errors.Join(err, errors.New(c.report.Violations[n-1].Text))
	}
	if err != nil {
		return fmt.Errorf("the node is not steady, and nothing was done: %w", err)
	}
	return nil
}

// look compares the node with the baseline and records violations. At rest it also checks the actors. The error names a
// condition that does not hold and may be temporary.
func (c *chaosRun) look(ctx context.Context, rest bool) error {
	all, err := c.Client.Pods(ctx, api.Filter{})
	if err != nil {
		return err
	}
	c.report.Looks++
	if !all.Runtime.Ready || !all.Runtime.NetworkReady {
		if rest {
			return errors.New("the container runtime or its network is not ready")
		}
		c.violated("the container runtime or its network was not ready")
	}
	if all.NotReady != "" {
		c.violated("the agent reports NotReady for its Node: " + all.NotReady)
	}
	if expires := all.LeaseExpires; !expires.IsZero() && time.Now().After(expires) {
		c.violated("the node's lease was not renewed before it ended at " + expires.Format(time.RFC3339))
	}
	if !all.Audited || len(all.Unheard) > 0 { // a restarted actor does not know all pods yet
		if rest {
			return errors.New("the agent, restarted in part, has not read all pods yet")
		}
		return nil
	}
	c.lookForLostDeletions(all)
	now, unknown := readyPods(all)
	for pod, containers := range c.before {
		if unknown[pod] {
			if rest {
				return fmt.Errorf("the status of pod %s is not known yet", pod)
			}
			continue
		}
		for name, was := range containers {
			if is, ready := now[pod][name]; now[pod] != nil && (!ready || is != was) {
				c.violated(fmt.Sprintf("container %s of pod %s was replaced: it is %s, and was %s", name, pod, is, was))
			}
		}
		if now[pod] == nil {
			c.violated("pod " + pod + " is not ready")
		}
	}
	if !rest {
		return nil
	}
	tree, err := c.Client.Actors(ctx)
	if err != nil {
		return err
	}
	for i := range tree.Actors {
		if a := &tree.Actors[i]; a.State != supervisors.Running {
			return fmt.Errorf("actor %s is %s", actors.ShownPath(a), a.State)
		}
	}
	if n := tree.Goroutines; c.goroutines > 0 && n > c.goroutines+c.goroutines/4+goroutineNoise {
		return fmt.Errorf("the agent has %d goroutines, and had %d before: something leaks", n, c.goroutines)
	}
	return c.leaks.look(ctx, all)
}

// lookForLostDeletions notes pods that are to end and do not.
func (c *chaosRun) lookForLostDeletions(all *api.Pods) {
	now, there := time.Now(), map[string]bool{}
	for i := range all.Pods {
		p := &all.Pods[i]
		uid := string(p.Pod.UID)
		if p.Ending == "" {
			continue
		}
		there[uid] = true
		since, seen := c.ending[uid]
		if !seen {
			since = now
			c.ending[uid] = since
		}
		grace := endsWithin
		if g := p.Pod.Spec.TerminationGracePeriodSeconds; g != nil {
			grace += time.Duration(*g) * time.Second
		}
		if now.Sub(since) > grace {
			c.violated(fmt.Sprintf("pod %s/%s does not end (it ends because %s)", p.Pod.Namespace, p.Pod.Name, p.Ending))
		}
	}
	maps.DeleteFunc(c.ending, func(uid string, _ time.Time) bool { return !there[uid] })
}

// leaks finds remains of absent pods in the container runtime and the agent's root folder, independently of the agent. The zero
// value finds none.
type leaks struct {
	runtime *cri.Client
	rootDir string
	before  []string // remains from before the experiment
}

// begin records the remains that already exist. After an error, leaks finds none.
func (l *leaks) begin(ctx context.Context, all *api.Pods, rootDir string) error {
	if rootDir == "" {
		return errors.New("the agent did not report its root folder")
	}
	client, err := cri.Dial(cri.Options{RuntimeEndpoint: all.Runtime.Endpoint})
	if err != nil {
		return err
	}
	found := leaks{runtime: client, rootDir: rootDir}
	if found.before, err = found.left(ctx, all); err != nil {
		return errors.Join(err, client.Close())
	}
	*l = found
	return nil
}

// end lets the connection go.
func (l *leaks) end() error {
	if l.runtime == nil {
		return nil
	}
	return l.runtime.Close()
}

// look is an error about the first thing that is left, and was not before.
func (l *leaks) look(ctx context.Context, all *api.Pods) error {
	if l.runtime == nil {
		return nil
	}
	left, err := l.left(ctx, all)
	left = slices.DeleteFunc(left, func(text string) bool { return slices.Contains(l.before, text) })
	if err == nil && len(left) > 0 {
		err = errors.New(left[0])
	}
	return err
}

// left returns sentences about the remains.
func (l *leaks) left(ctx context.Context, all *api.Pods) (out []string, err error) {
	sandboxes, err := l.runtime.ListPodSandbox(ctx, nil)
	if err != nil {
		return nil, err
	}
	containers, err := l.runtime.ListContainers(ctx, nil)
	if err != nil {
		return nil, err
	}
	folders, err := os.ReadDir(filepath.Join(l.rootDir, "pods"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	known := map[string]bool{} // pods, by UID
	for i := range all.Pods {
		known[string(all.Pods[i].Pod.UID)] = true
	}
	of := map[string]bool{} // sandboxes, by ID
	for _, s := range sandboxes {
		of[s.GetId()] = true
		if m := s.GetMetadata(); s.GetAnnotations()[cri.AnnotationRootDir] == l.rootDir && !known[m.GetUid()] {
			out = append(out, fmt.Sprintf("sandbox %s of the removed pod %s/%s still exists", s.GetId(), m.GetNamespace(),
				m.GetName()))
		}
	}
	running := map[[2]string]bool{}
	for _, c := range containers {
		if c.GetAnnotations()[cri.AnnotationRootDir] != l.rootDir {
			continue
		}
		labels := c.GetLabels()
		pod, one := labels[cri.LabelPodNamespace]+"/"+labels[cri.LabelPodName],
			[2]string{labels[cri.LabelPodUID], labels[cri.LabelContainerName]}
		up := c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING
		switch {
		case !of[c.GetPodSandboxId()]:
			out = append(out, fmt.Sprintf("container %s of pod %s still exists without its sandbox", c.GetId(), pod))
		case up && running[one]:
			out = append(out, fmt.Sprintf("two instances of container %s of pod %s run", one[1], pod))
		case up:
			running[one] = true
		}
	}
	for _, f := range folders {
		if !known[f.Name()] {
			folder := filepath.Join(l.rootDir, "pods", f.Name())
			out = append(out, fmt.Sprintf("the folder %s of a removed pod still exists", folder))
		}
	}
	return out, nil
}
