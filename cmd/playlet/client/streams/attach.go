package streams

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cmd/playlet/cli"
)

const attachLong = `Join the process of a container that runs: what it writes from now on is printed, and with -i what is typed goes to it. Without
-c it is the pod's default container, as for kubectl. "playlet logs" prints what it has written before.

The process goes on when playlet is interrupted, unless it has a terminal (-it): then Ctrl-C goes to the process.`

const attachExample = `  # What it writes
  playlet attach web

  # A shell that is the container's own process, with stdin: true and tty: true in its spec
  playlet attach -it debug`

func newAttachCommand() *cobra.Command {
	c := &streamCommand{}
	cmd := &cobra.Command{
		Use: "attach POD", Short: "Join the process of a container", Long: attachLong, Example: attachExample, Args: onePod,
	}
	socket := c.addFlags(cmd)
	c.addContainerFlag(cmd)
	cmd.Flags().BoolVarP(&c.options.Stdin, "stdin", "i", false, "Pass the standard input on")
	cmd.Flags().BoolVarP(&c.options.TTY, "tty", "t", false, "The input is a terminal, and so is the container's")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c.begin(cmd, *socket)
		return c.attach(cmd.Context(), args[0])
	}
	return cmd
}

func (c *streamCommand) attach(ctx context.Context, arg string) error {
	pod, err := c.find(ctx, arg)
	if err != nil {
		return err
	}
	t := api.Terminal{Stdout: c.out, Stderr: c.err, Note: c.note}
	spec := containerSpec(pod.Pod, c.options.Container)
	if spec != nil { // where it is not known, the agent says why
		if c.options.Stdin && !spec.Stdin {
			return fmt.Errorf("container %q reads no input: its spec lacks stdin: true; attach without -i", spec.Name)
		}
		if c.options.TTY && !spec.TTY {
			c.note(fmt.Sprintf("container %q has no terminal (tty: true in its spec); -t is without effect", spec.Name))
		}
		c.options.TTY = spec.TTY
	}
	if c.options.Stdin {
		t.Stdin = c.in
	}
	restore, err := c.terminal(ctx, &t)
	if err != nil {
		return err
	}
	if c.options.Stdin && cli.IsTerminal(c.in) {
		c.note("what is typed goes to the process; press Enter to see a prompt")
	}
	err = c.client.Attach(ctx, pod.Pod.Namespace, pod.Pod.Name, c.options, t)
	restore()
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// containerSpec is the container of this name; of the pod's default one, as for kubectl, where it is empty.
func containerSpec(pod *v1.Pod, name string) *v1.Container {
	containers := append(pod.Spec.Containers[:len(pod.Spec.Containers):len(pod.Spec.Containers)], pod.Spec.InitContainers...)
	for i := range pod.Spec.EphemeralContainers {
		containers = append(containers, v1.Container(pod.Spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
	for _, want := range []string{name, pod.Annotations["kubectl.kubernetes.io/default-container"]} {
		for i := range containers {
			if want != "" && containers[i].Name == want {
				return &containers[i]
			}
		}
	}
	if name != "" || len(containers) == 0 {
		return nil
	}
	return &containers[0]
}
