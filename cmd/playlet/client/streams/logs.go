package streams

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cmd/playlet/cli"
	"github.com/playlet-dev/playlet/cmd/playlet/client/base"
	"github.com/playlet-dev/playlet/cmd/playlet/client/names"
	"github.com/playlet-dev/playlet/messages"
)

const logsLong = `Print the log of a container. Without -c, the pod's default container is used, as with kubectl. The logs of
several pods or containers are printed one after another; with -f, their lines are printed as they are written, and --prefix
adds the container to each line.

With -f, output is printed as it is written, until the container exits or Ctrl-C.`

const logsExample = `  # In a pod with one container
  playlet logs web-node1

  # Follow the log, starting with the last 20 lines
  playlet logs -f --tail=20 web-node1

  # The log of the previous run
  playlet logs --previous web-node1 -c app

  # Follow all containers of the pods with a label
  playlet logs -f -l app=web --all-containers --prefix

  # The last five minutes, with timestamps
  playlet logs --since=5m --timestamps -n kube-system proxy-node1`

// logsCommand is one run of "playlet logs".
type logsCommand struct {
	base.Command
	set         names.Set
	options     api.LogOptions
	everyone    bool // all containers
	prefix      bool
	since       time.Duration
	sinceTime   string
	tail, limit int64
}

func newLogsCommand() *cobra.Command {
	c := &logsCommand{}
	cmd := &cobra.Command{
		Use: "logs POD... | POD CONTAINER", Aliases: []string{"log"}, Short: "Print the logs of containers", Long: logsLong,
		Example: logsExample,
		Args:    c.set.Some,
	}
	flags := cmd.Flags()
	c.set.AddFlags(cmd, &c.Socket)
	flags.BoolVar(&c.everyone, "all-containers", false, "Print the logs of all containers of a pod")
	flags.BoolVar(&c.prefix, "prefix", false,
		"Prefix each line with the pod and the container, in color on a terminal (unless NO_COLOR is set)")
	names.AddContainerFlag(cmd, &c.options.Container, &c.Socket, &c.set.Namespace)
	flags.BoolVarP(&c.options.Follow, "follow", "f", false,
		"Follow the log until the container exits or Ctrl-C")
	flags.BoolVarP(&c.options.Previous, "previous", "p", false, "Print the log of the previous run")
	flags.BoolVar(&c.options.Timestamps, "timestamps", false, "Prefix each line with its time")
	flags.DurationVar(&c.since, "since", 0, "Print only lines newer than this `duration`, such as 5s, 2m or 3h")
	flags.StringVar(&c.sinceTime, "since-time", "", "Print only lines newer than this `time` (RFC 3339)")
	flags.Int64Var(&c.tail, "tail", -1, "Print only this many `lines` from the end; -1 prints all")
	flags.Int64Var(&c.limit, "limit-bytes", 0, "Print at most this many `bytes`; 0 means no limit")
	cmd.MarkFlagsMutuallyExclusive("since", "since-time")
	cmd.MarkFlagsMutuallyExclusive("container", "all-containers")
	return c.Runs(cmd, c.run)
}

// prefixColours are the colours of prefixes, one for each of several logs, as codes of ECMA-48. They are legible on light and on
// dark backgrounds.
var prefixColours = []string{"\x1b[36m", "\x1b[33m", "\x1b[32m", "\x1b[35m", "\x1b[34m", "\x1b[31m"}

// logSource is one log.
type logSource struct {
	pod       *api.Pod
	container string
}

func (c *logsCommand) run(ctx context.Context, _ []string) error {
	if err := c.settle(); err != nil {
		return err
	}
	sources, err := c.sources(ctx)
	if err != nil {
		return err
	}
	if len(sources) == 1 && !c.prefix {
		return c.read(ctx, sources[0], c.Out)
	}
	var mu sync.Mutex // held while a line or a failure is printed
	var group sync.WaitGroup
	failed := 0
	colour := len(sources) > 1 && cli.WantsColour(c.Out)
	read := func(i int, s logSource) {
		out := &lineWriter{mu: &mu, out: c.Out}
		if c.prefix {
			out.prefix = fmt.Sprintf("[pod/%s/%s] ", s.pod.Pod.Name, s.container)
		}
		if c.prefix && colour {
			out.prefix = prefixColours[i%len(prefixColours)] + out.prefix + "\x1b[0m"
		}
		err := c.read(ctx, s, out)
		out.end()
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			failed++
			c.Note(messages.OneLine(err))
		}
	}
	for i, s := range sources {
		if c.options.Follow {
			group.Go(func() { read(i, s) })
		} else {
			read(i, s)
		}
	}
	group.Wait()
	if failed > 0 && failed == len(sources) {
		return errors.New("none of these logs could be read")
	}
	return nil
}

// sources are the logs that are meant.
func (c *logsCommand) sources(ctx context.Context) ([]logSource, error) {
	all, err := c.Client.Pods(ctx, c.set.Filter())
	if err != nil {
		return nil, err
	}
	found, missing := c.set.Choose(all.Pods)
	if missing != nil && len(c.set.Names) == 2 && len(found) == 1 && c.options.Container == "" && !c.everyone {
		missing = c.containerOf(&found[0], missing)
	}
	found, notes := names.Meant(found)
	c.Note(notes...)
	if missing != nil {
		return nil, missing
	}
	if len(c.set.Names) == 1 && len(found) > 1 {
		return nil, names.Ambiguous(found)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("no pod has the labels %s", c.set.Selector)
	}
	var out []logSource
	for i := range found {
		p := &found[i]
		if !c.everyone {
			name := c.options.Container
			if chosen := containerSpec(p.Pod, name); name == "" && chosen != nil && (c.prefix || len(found) > 1) {
				name = chosen.Name
			}
			out = append(out, logSource{p, name})
			continue
		}
		for _, container := range names.Containers(p.Pod) {
			out = append(out, logSource{p, container.Name})
		}
	}
	return out, nil
}

// containerOf takes the second of two names as a container of the first, as kubectl does.
func (c *logsCommand) containerOf(pod *api.Pod, missing error) error {
	second := c.set.Names[1].Name
	if len(c.set.Names[0].Choose([]api.Pod{*pod})) == 0 {
		return missing
	}
	if containerSpec(pod.Pod, second) != nil {
		c.options.Container = second
		return nil
	}
	var has []string
	for _, container := range names.Containers(pod.Pod) {
		has = append(has, container.Name)
	}
	return fmt.Errorf("%w, and no container of this name in pod %s, which has %s", missing, names.Full(pod),
		strings.Join(has, ", "))
}

func (c *logsCommand) read(ctx context.Context, s logSource, out io.Writer) error {
	o := c.options
	o.UID, o.Container = string(s.pod.Pod.UID), s.container
	return c.Client.Logs(ctx, s.pod.Pod.Namespace, s.pod.Pod.Name, o, out, func(text string) { c.Note(text) })
}

// lineWriter writes whole lines, so that several logs do not mix. A very long line is split.
type lineWriter struct {
	mu     *sync.Mutex
	out    io.Writer
	prefix string
	begun  []byte
}

const maxLine = 64 << 10

func (w *lineWriter) Write(p []byte) (int, error) {
	w.begun = append(w.begun, p...)
	for {
		end := bytes.IndexByte(w.begun, '\n') + 1
		if end == 0 && len(w.begun) < maxLine {
			return len(p), nil
		}
		if end == 0 {
			end = len(w.begun)
		}
		if err := w.line(w.begun[:end]); err != nil {
			return 0, err
		}
		w.begun = w.begun[end:]
	}
}

func (w *lineWriter) line(text []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err := fmt.Fprintf(w.out, "%s%s", w.prefix, text)
	return err
}

// end writes an unfinished line.
func (w *lineWriter) end() {
	if len(w.begun) > 0 {
		_ = w.line(append(w.begun, '\n')) // the command ends: its output may be closed
	}
}

// settle makes options of the flags.
func (c *logsCommand) settle() error {
	switch {
	case c.since < 0:
		return fmt.Errorf("--since=%s: it must be more than 0", c.since)
	case c.since > 0:
		c.options.Since = c.Now().Add(-c.since)
	case c.sinceTime != "":
		at, err := time.Parse(time.RFC3339Nano, c.sinceTime)
		if err != nil {
			return fmt.Errorf("--since-time=%s: it must be like 2026-01-02T15:04:05Z", c.sinceTime)
		}
		c.options.Since = at
	}
	switch {
	case c.tail < -1:
		return fmt.Errorf("--tail=%d: it must be a number of lines, or -1 for all", c.tail)
	case c.tail >= 0:
		c.options.Tail = &c.tail
	}
	switch {
	case c.limit < 0:
		return fmt.Errorf("--limit-bytes=%d: it must not be negative", c.limit)
	case c.limit > 0:
		c.options.LimitBytes = &c.limit
	}
	return nil
}
