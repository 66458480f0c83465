package submissions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cmd/playlet/cli"
	"github.com/playlet-dev/playlet/cmd/playlet/client/base"
	"github.com/playlet-dev/playlet/cmd/playlet/client/names"
	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
)

const restartLong = `Stop containers of a pod, with pre-stop hook and grace period, and start them again at once: any back-off
is skipped or cut short. The pod, its sandbox and its addresses stay; sidecars are restarted too.

Containers that run once (restartPolicy Never or OnFailure, init containers) are refused: their exit would count as
completion. If the agent does not answer, run the same command again: it leaves alone a container that was already restarted.`

const restartExample = `  # All containers of a pod
  playlet restart web

  # The pods with a label
  playlet restart -l app=web

  # One container, and wait until it runs again
  playlet restart web/nginx --wait`

// restartCommand is one run of "playlet restart".
type restartCommand struct {
	submitCommand
	namespace, container string
	selector             string
	ids                  map[string]map[string]string // of the containers that are restarted, by the pod's UID and their names
}

func newRestartCommand() *cobra.Command {
	c := &restartCommand{ids: map[string]map[string]string{}}
	c.restarting = true
	cmd := &cobra.Command{
		Use: "restart POD[/CONTAINER]... | -l SELECTOR", Short: "Restart containers", Long: restartLong,
		Example:           restartExample,
		ValidArgsFunction: names.CompletePods(&c.Socket, &c.namespace, true),
		Args: func(cmd *cobra.Command, args []string) error {
			switch set := (names.Set{Selector: c.selector}); {
			case c.selector != "": // which refuses names beside it
				return set.Settle(cmd, args)
			case len(args) == 0:
				return names.NoPod(cmd)
			}
			return nil
		},
	}
	names.AddNamespaceFlag(cmd, &c.namespace, &c.Socket, names.OfOnePod)
	names.AddContainerFlag(cmd, &c.container, &c.Socket, &c.namespace)
	cmd.Flags().StringVarP(&c.selector, "selector", "l", "",
		"The pods whose labels match this `selector`, such as app=web,tier!=test")
	c.addWaitFlags(cmd, "Wait until the containers run again and their pods are ready; progress is printed to stderr")
	return c.Runs(cmd, func(ctx context.Context, args []string) error {
		return c.perform(ctx, c.restartAll(ctx, args), c.awaitRestarted)
	})
}

func (c *restartCommand) restartAll(ctx context.Context, args []string) error {
	all, err := base.Retry(ctx, startTimeout, func() (*api.Pods, error) {
		return c.Client.Pods(ctx, api.Filter{Namespace: c.namespace})
	})
	if err != nil {
		return err
	}
	var errs []error
	var pods []*api.Pod // each once, however often and by whatever names it is named
	if c.selector != "" {
		set := names.Set{Namespace: c.namespace, Selector: c.selector}
		if err := set.Settle(nil, nil); err != nil {
			return err
		}
		found, _ := set.Choose(all.Pods)
		if found, _ = names.Meant(found); len(found) == 0 {
			return fmt.Errorf("no pod has the labels %s", c.selector)
		}
		for i := range found {
			args = append(args, names.Full(&found[i]))
		}
	}
	for _, arg := range args {
		pod, container, err := c.target(all.Pods, arg)
		if err == nil {
			err = c.add(pod, container)
		}
		if err != nil {
			errs = append(errs, err)
		} else if !slices.ContainsFunc(pods, func(p *api.Pod) bool { return p.Pod.UID == pod.Pod.UID }) {
			pods = append(pods, pod)
		}
	}
	for _, pod := range pods {
		errs = append(errs, c.restart(ctx, pod))
	}
	return errors.Join(errs...)
}

// target is the pod that is meant, and its container, or all: a/b is pod b of namespace a, where there is such a one, and
// container b of pod a elsewhere.
func (c *restartCommand) target(pods []api.Pod, arg string) (pod *api.Pod, container string, err error) {
	find := func(arg string) (*api.Pod, error) {
		pod, notes, err := names.One(c.namespace, arg, pods)
		c.Note(notes...)
		return pod, err
	}
	if pod, err = find(arg); err == nil {
		return pod, c.container, nil
	}
	if i := strings.LastIndexByte(arg, '/'); i > 0 && c.container == "" {
		if p, notFound := find(arg[:i]); notFound == nil {
			return p, arg[i+1:], nil
		}
	}
	return nil, "", err
}

// add notes one container of a pod, or all that may be restarted.
func (c *restartCommand) add(pod *api.Pod, container string) error {
	ids := idsOf(pod, container)
	if len(ids) == 0 {
		why := cmp.Or(pod.Cause, "none of its containers has been started yet")
		if container != "" {
			why = fmt.Sprintf("it has no container %q that was started", container)
		}
		return fmt.Errorf("pod %s: %s", names.Full(pod), cli.Plain(why))
	}
	uid := string(pod.Pod.UID)
	if c.ids[uid] == nil {
		c.ids[uid] = map[string]string{}
	}
	maps.Copy(c.ids[uid], ids)
	return nil
}

// restart has the containers that were noted of a pod restarted.
func (c *restartCommand) restart(ctx context.Context, pod *api.Pod) error {
	uid := string(pod.Pod.UID)
	done, err := base.Retry(ctx, startTimeout, func() (*api.Restarts, error) { return c.Client.Restart(ctx, uid, c.ids[uid]) })
	if refused, ok := errors.AsType[*api.Error](err); ok && refused.Status == http.StatusNotFound {
		err = errors.New("it is gone, or is about to be")
	}
	if err != nil {
		return fmt.Errorf("pod %s: %w", names.Full(pod), err)
	}
	c.done = append(c.done, messages.SubmittedPod{Namespace: pod.Pod.Namespace, PodName: pod.Pod.Name, UID: uid})
	for _, name := range done.Containers {
		fmt.Fprintf(c.Out, "pod/%s container %s restarting\n", pod.Pod.Name, name)
	}
	return nil
}

// idsOf are the IDs of the pod's containers by name, of one, or of all but those that run to their end before the others.
func idsOf(pod *api.Pod, container string) map[string]string {
	out := map[string]string{}
	s := &pod.Pod.Status
	for _, c := range slices.Concat(s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses) {
		_, id, started := strings.Cut(c.ContainerID, "://")
		if started && (container == c.Name || container == "" && stays(pod.Pod, c.Name)) {
			out[c.Name] = id
		}
	}
	return out
}

// stays reports whether a container keeps running: it is neither an init container that ends nor an ephemeral container.
func stays(pod *v1.Pod, name string) bool {
	named := func(c v1.Container) bool { return c.Name == name }
	if i := slices.IndexFunc(pod.Spec.InitContainers, named); i >= 0 {
		return translate.RestartsAlways(&pod.Spec.InitContainers[i])
	}
	return slices.ContainsFunc(pod.Spec.Containers, named)
}

// awaitRestarted waits until each container is another one, which runs, in a pod that is ready.
func (c *restartCommand) awaitRestarted(ctx context.Context) error {
	return c.await(ctx, "ready", func(p *api.Pod) (bool, error) {
		before := c.ids[string(p.Pod.UID)]
		for name, id := range idsOf(p, "") {
			if before[name] == id {
				return false, nil
			}
		}
		return settled(p, untilReady, c.Now())
	})
}
