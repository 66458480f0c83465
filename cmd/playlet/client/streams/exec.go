package streams

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cmd/playlet/cli"
	"github.com/playlet-dev/playlet/cmd/playlet/client/names"
	"github.com/playlet-dev/playlet/cri"
)

const execLong = `Run a command in a running container. Without -c, the pod's default container is used, as with kubectl. The
command follows "--"; it is run without a shell unless you name one.

The exit code is that of the command. It is 1 if the command could not be run or its result is unknown, 127 if the
container has no such command, and 126 if the command may not be executed. A command continues when playlet is interrupted,
unless it fails to write its output; with -it, Ctrl-C is sent to the command.`

const execExample = `  # In a pod with one container
  playlet exec web -- cat /etc/hosts

  # A shell
  playlet exec -it web -c app -- sh

  # A file as input
  playlet exec -i db -- psql < dump.sql`

func newExecCommand() *cobra.Command {
	c := &streamCommand{}
	cmd := &cobra.Command{
		Use: "exec POD -- COMMAND [ARG...]", Short: "Run a command in a container", Long: execLong, Example: execExample,
		Args: podAndCommand,
	}
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		unknown, isUnknown := errors.AsType[*pflag.NotExistError](err)
		if args := cmd.Flags().Args(); len(args) > 1 && isUnknown { // the flag is the command's
			flag := "--" + unknown.GetSpecifiedName()
			if letters := unknown.GetSpecifiedShortnames(); letters != "" {
				flag = "-" + letters
			}
			return podAndCommand(cmd, append(args, flag, "…"))
		}
		return cmd.Parent().FlagErrorFunc()(cmd, err)
	})
	c.addFlags(cmd)
	c.addContainerFlag(cmd)
	flags := cmd.Flags()
	flags.BoolVarP(&c.options.Stdin, "stdin", "i", false, "Pass standard input on")
	flags.BoolVarP(&c.options.TTY, "tty", "t", false, "Allocate a terminal for the command")
	return c.Runs(cmd, c.exec)
}

// podAndCommand checks for one pod before "--", and a command after it.
func podAndCommand(cmd *cobra.Command, args []string) error {
	dash := cmd.ArgsLenAtDash()
	if dash < 0 && len(args) > 1 {
		return fmt.Errorf(`a command comes after "--": %s %s -- %s`, cmd.CommandPath(), args[0], strings.Join(args[1:], " "))
	}
	before := args
	if dash >= 0 {
		before = args[:dash]
	}
	if err := onePod(cmd, before); err != nil {
		return err
	}
	if len(args) == 1 {
		return fmt.Errorf("which command? (%s %s -- COMMAND; %s --help shows examples)", cmd.CommandPath(), args[0],
			cmd.CommandPath())
	}
	return nil
}

func (c *streamCommand) exec(ctx context.Context, args []string) error {
	c.options.Command = args[1:]
	pod, err := c.find(ctx, args[0])
	if err != nil {
		return err
	}
	stderr := &stderrCapture{Writer: c.Err}
	t := api.Terminal{Stdout: c.Out, Stderr: stderr, Note: c.note}
	if c.options.Stdin {
		t.Stdin = c.In
	}
	if c.options.TTY && !cli.IsTerminal(c.In) {
		c.options.TTY = false
		c.note("stdin is not a terminal: -t is ignored")
	}
	restore, err := c.terminal(ctx, &t)
	if err != nil {
		return err
	}
	code, err := c.Client.Exec(ctx, pod.Pod.Namespace, pod.Pod.Name, c.options, t)
	restore()
	switch {
	case ctx.Err() != nil:
		return &cli.ExitError{Code: 130, Err: errors.New("interrupted; the command may still run")}
	case err != nil:
		if _, refused := errors.AsType[*api.Error](err); !refused {
			err = fmt.Errorf("%s in pod %s: %w", c.options.Command[0], names.Full(pod), err)
		}
		code := notRun(err)
		switch cri.NotRun(code) {
		case cri.NotFound:
			err = fmt.Errorf("there is no command %q in the container of pod %s", c.options.Command[0], names.Full(pod))
		case cri.NotAllowed:
			err = fmt.Errorf("%q may not be executed in the container of pod %s", c.options.Command[0], names.Full(pod))
		}
		return &cli.ExitError{Code: code, Err: err}
	case code != 0:
		return &cli.ExitError{Code: stderr.exitCode(code)}
	}
	return nil
}

// notRun is the exit code for a command that could not be run, as shells have it.
func notRun(err error) int {
	if why, _ := cri.WhyNotRun(err.Error()); why != 0 {
		return int(why)
	}
	return 1
}

// stderrCapture forwards a command's output on stderr, and keeps its beginning.
type stderrCapture struct {
	io.Writer
	said []byte
}

const maxHeard = 4 << 10

func (h *stderrCapture) Write(p []byte) (int, error) {
	h.said = append(h.said, p[:min(len(p), maxHeard-len(h.said))]...)
	return h.Writer.Write(p)
}

// ofTheRuntime matches the beginning of the messages of runc and crun about a command that they cannot start.
var ofTheRuntime = regexp.MustCompile("^(?:time=\\S+ level=error msg=\"?)?(?:OCI runtime )?(?:exec failed: )?" +
	"(?:unable to start container process: |executable file [`'])")

// exitCode returns the exit code for a command that ended with code. For a command that did not run, CRI-O returns the exit code
// of the OCI runtime (runc 255, crun 1 or 127), whose message is on the command's stderr.
func (h *stderrCapture) exitCode(code int) int {
	if code != 255 && code != 1 || !ofTheRuntime.Match(h.said) { // the command itself may have written much the same
		return code
	}
	if why, _ := cri.WhyNotRun(string(h.said)); why != 0 {
		return int(why)
	}
	return code
}

const attachLong = `Attach to the main process of a running container: print its new output and, with -i, send it standard
input. Without -c, the pod's default container is used, as with kubectl. "playlet logs" prints earlier output.

The process continues when playlet is interrupted, unless it has a terminal (-it): then Ctrl-C is sent to the process.`

const attachExample = `  # Print its output
  playlet attach web

  # Use a shell that is the container's main process (stdin: true and tty: true in its spec)
  playlet attach -it debug`

func newAttachCommand() *cobra.Command {
	c := &streamCommand{}
	cmd := &cobra.Command{
		Use: "attach POD", Short: "Attach to the main process of a container", Long: attachLong, Example: attachExample,
		Args: onePod,
	}
	c.addFlags(cmd)
	c.addContainerFlag(cmd)
	cmd.Flags().BoolVarP(&c.options.Stdin, "stdin", "i", false, "Pass standard input on")
	cmd.Flags().BoolVarP(&c.options.TTY, "tty", "t", false, "Standard input is a terminal, and the container has one too")
	return c.Runs(cmd, c.attach)
}

func (c *streamCommand) attach(ctx context.Context, args []string) error {
	pod, err := c.find(ctx, args[0])
	if err != nil {
		return err
	}
	t := api.Terminal{Stdout: c.Out, Stderr: c.Err, Note: c.note}
	spec := containerSpec(pod.Pod, c.options.Container)
	if spec != nil { // for an unknown container the agent returns the error
		if c.options.Stdin && !spec.Stdin {
			return fmt.Errorf("container %q reads no input: its spec lacks stdin: true; attach without -i", spec.Name)
		}
		if c.options.TTY && !spec.TTY {
			c.note(fmt.Sprintf("container %q has no terminal (tty: true in its spec); -t is without effect", spec.Name))
		}
		c.options.TTY = spec.TTY
	}
	if c.options.Stdin {
		t.Stdin = c.In
	}
	restore, err := c.terminal(ctx, &t)
	if err != nil {
		return err
	}
	if c.options.Stdin && cli.IsTerminal(c.In) {
		c.note("what is typed goes to the process; press Enter to see a prompt")
	}
	err = c.Client.Attach(ctx, pod.Pod.Namespace, pod.Pod.Name, c.options, t)
	restore()
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// containerSpec is the container of this name; of the pod's default one, as for kubectl, where it is empty.
func containerSpec(pod *v1.Pod, name string) *v1.Container {
	containers := names.Containers(pod)
	for _, want := range []string{name, pod.Annotations["kubectl.kubernetes.io/default-container"]} {
		for i := range containers {
			if want != "" && containers[i].Name == want {
				return &containers[i]
			}
		}
	}
	if name != "" || len(pod.Spec.Containers) == 0 {
		return nil
	}
	return &pod.Spec.Containers[0]
}
