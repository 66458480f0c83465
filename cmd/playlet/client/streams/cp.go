package streams

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cmd/playlet/cli"
	"github.com/playlet-dev/playlet/cmd/playlet/client/names"
)

const cpLong = `Copy files and folders into or out of a running container, which must have tar. One of the two arguments is
[NAMESPACE/]POD:PATH. If the target is an existing folder, the copy is put into it.

When copying out of a container, nothing is written outside the target: links that lead out of it, devices and the like are
skipped and listed. Copied files keep neither their owner nor setuid bits.`

const cpExample = `  # Out of a container
  playlet cp web:/etc/nginx ./nginx

  # Into one of several containers
  playlet cp ./site shop/web:/usr/share/html -c app`

func newCpCommand() *cobra.Command {
	c := &streamCommand{}
	cmd := &cobra.Command{
		Use: "cp [POD:]FROM [POD:]TO", Short: "Copy files into or out of a container", Long: cpLong, Example: cpExample,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return fmt.Errorf("copy what where? (%s web:/path ./path; %s --help shows examples)", cmd.CommandPath(),
					cmd.CommandPath())
			}
			return nil
		},
	}
	c.addFlags(cmd)
	c.addContainerFlag(cmd)
	pods := cmd.ValidArgsFunction
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
		names, _ := pods(cmd, nil, word)
		names = slices.DeleteFunc(names, func(n string) bool { return !strings.HasPrefix(n, word) })
		for i := range names {
			names[i] += ":"
		}
		return names, cobra.ShellCompDirectiveNoSpace // where none of them is meant, the shell completes files
	}
	return c.Runs(cmd, c.cp)
}

// inPod splits POD:PATH; a name with a slash or a dot at its beginning is a file of this machine, as for kubectl.
func inPod(arg string) (pod, file string, ok bool) {
	pod, file, ok = strings.Cut(arg, ":")
	return pod, file, ok && pod != "" && !strings.HasPrefix(arg, "/") && !strings.HasPrefix(arg, ".")
}

func (c *streamCommand) cp(ctx context.Context, args []string) error {
	from, to := args[0], args[1]
	fromPod, fromPath, out := inPod(from)
	toPod, toPath, in := inPod(to)
	switch {
	case out == in:
		return errors.New("one of the two is in a container (POD:PATH), the other on this machine")
	case out && fromPath == "" || in && toPath == "":
		return errors.New("no path is named after the colon (POD:PATH)")
	}
	name := toPod
	if out {
		name = fromPod
	}
	pod, err := c.find(ctx, name)
	if err != nil {
		return err
	}
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	if out {
		err = c.copyOut(inner, pod, path.Clean(fromPath), to, cancel)
	} else {
		err = c.copyIn(inner, pod, from, toPath, cancel)
	}
	if ctx.Err() != nil {
		return &cli.ExitError{Code: 130, Err: errors.New("interrupted; the copy is incomplete")}
	}
	return err
}

// copyOut runs tar in the container and unpacks its output.
func (c *streamCommand) copyOut(ctx context.Context, pod *api.Pod, from, to string, cancel func()) error {
	dir, base := path.Split(from)
	if dir == "" {
		dir = "."
	}
	r, w := io.Pipe()
	unpacked := make(chan error, 1)
	go func() {
		u := unpacker{note: c.note}
		err := u.unpack(r, base, to)
		if err == nil || errors.Is(err, errNothingSent) { // tar pads its archive, and then reports why it is empty
			_, _ = io.Copy(io.Discard, r)
		} else {
			cancel() // the reader has stopped
		}
		unpacked <- errors.Join(err, r.CloseWithError(err))
	}()
	err := c.tar(ctx, pod, nil, w, "tar", "cf", "-", "-C", dir, "./"+base)
	stopped := ctx.Err() != nil  // unpack has failed first, or the user has interrupted
	_ = w.CloseWithError(io.EOF) // a pipe's closing cannot fail
	if failed := <-unpacked; failed != nil && (err == nil || stopped) {
		return failed
	}
	return err
}

// copyIn packs, and has tar in the container unpack.
func (c *streamCommand) copyIn(ctx context.Context, pod *api.Pod, from, to string, cancel func()) error {
	name := lastName(from)
	if !strings.HasSuffix(to, "/") && c.tar(ctx, pod, nil, io.Discard, "test", "-d", to) != nil {
		to, name = path.Split(to)
	}
	if to == "" {
		to = "."
	}
	r, w := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := pack(w, from, name, c.note)
		if err != nil {
			cancel()
		}
		packed <- errors.Join(err, w.CloseWithError(err))
	}()
	err := c.tar(ctx, pod, r, io.Discard, "tar", "xmf", "-", "-C", to)
	stopped := ctx.Err() != nil // pack has failed first, or the user has interrupted
	_ = r.CloseWithError(errors.New("tar in the container has ended"))
	if failed := <-packed; failed != nil && (err == nil || stopped) {
		return failed
	}
	return err
}

// tar runs a command in the container. The beginning of its output on stderr becomes the error.
func (c *streamCommand) tar(ctx context.Context, pod *api.Pod, in io.Reader, out io.Writer, command ...string) error {
	said := stderrCapture{Writer: io.Discard}
	o := c.options
	o.Command, o.Stdin = command, in != nil
	note := func(text string) {
		if !c.noted { // of the container that was chosen
			c.note(text)
		}
		c.noted = true
	}
	t := api.Terminal{Stdin: in, Stdout: out, Stderr: &said, Note: note}
	code, err := c.Client.Exec(ctx, pod.Pod.Namespace, pod.Pod.Name, o, t)
	text := cli.Plain(strings.TrimSpace(string(said.said)))
	switch {
	case err != nil && notRun(err) == 127:
		return fmt.Errorf("the container of pod %s has no %s, which is needed to copy; playlet exec reads a file without it: "+
			"playlet exec %s -- cat FILE", names.Full(pod), command[0], pod.Pod.Name)
	case err != nil:
		return err
	case code != 0:
		return fmt.Errorf("pod %s: %s", names.Full(pod), tarFailure(text, code, folderOf(command)))
	case text != "":
		c.note(text)
	}
	return nil
}

// tarFailures maps messages of GNU tar and BusyBox tar, as expressions with the path, to errors.
var tarFailures = []struct {
	said  *regexp.Regexp
	means string
}{
	{regexp.MustCompile(`(?i)tar: (?:can't open ')?(?:\./)?([^':]*)'?: (?:Cannot (?:open|stat|mkdir): )?Permission denied`),
		"the container's user may not read or write %s"},
	{regexp.MustCompile(`(?i)tar: (?:can't open ')?(?:\./)?([^':]*)'?: (?:Cannot (?:open|stat|mkdir): )?Read-only file system`),
		"%s is on a read-only file system"},
	{regexp.MustCompile(`(?i)tar: (?:can't change directory to ')?([^':]*)'?: (?:Cannot (?:open|chdir): )?Not a directory`),
		"%s is not a folder in the container"},
	{regexp.MustCompile(`(?i)tar: (?:can't (?:open|change directory to) ')?(?:\./)?([^':]*)'?: (?:Cannot (?:open|stat|chdir): )?` +
		`No such file or directory`), "there is no %s in the container"},
	{regexp.MustCompile(`(?i)()No space left on device`), "no space is left in the container%s"},
}

// tarFailure puts the first known failure that tar has written into words; of another one, its own words with the exit code.
func tarFailure(text string, code int, dir string) string {
	for _, f := range tarFailures {
		if found := f.said.FindStringSubmatch(text); found != nil {
			file := found[1]
			if file != "" && !path.IsAbs(file) {
				file = path.Join(dir, file)
			}
			return fmt.Sprintf(f.means, file)
		}
	}
	return fmt.Sprintf("tar in the container exited with code %d: %s", code, text)
}

// folderOf is the folder in which a command of tar works.
func folderOf(command []string) string {
	if i := slices.Index(command, "-C"); i >= 0 {
		return command[i+1]
	}
	return ""
}
