package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cmd/playlet/cli"
)

const logsLong = `Print what a container has written. Without -c it is the pod's default container, as for kubectl.

With -f, what it writes is printed as it comes, until the container ends or Ctrl-C.`

const logsExample = `  # Of a pod with one container
  playlet logs web-node1

  # As it comes, from the last 20 lines on
  playlet logs -f --tail=20 web-node1

  # Why it ended the last time
  playlet logs --previous web-node1 -c app

  # Of the last five minutes, with times
  playlet logs --since=5m --timestamps -n kube-system proxy-node1`

// logsCommand is one run of "playlet logs".
type logsCommand struct {
	client      *api.Client
	namespace   string
	options     api.LogOptions
	since       time.Duration
	sinceTime   string
	tail, limit int64
	out, err    io.Writer
	now         func() time.Time
}

func newLogsCommand() *cobra.Command {
	c := &logsCommand{now: time.Now}
	cmd := &cobra.Command{
		Use: "logs POD", Aliases: []string{"log"}, Short: "Print the log of a container", Long: logsLong, Example: logsExample,
		Args: onePod,
	}
	socket := cli.SocketFlag(cmd)
	flags := cmd.Flags()
	flags.StringVarP(&c.namespace, "namespace", "n", "", "The pod's `namespace`; not needed where only one pod has this name")
	flags.StringVarP(&c.options.Container, "container", "c", "", "The `container`, where the pod has several")
	flags.BoolVarP(&c.options.Follow, "follow", "f", false,
		"Go on, and print what is written, until the container ends or Ctrl-C")
	flags.BoolVarP(&c.options.Previous, "previous", "p", false, "Of the run before the latest one")
	flags.BoolVar(&c.options.Timestamps, "timestamps", false, "Begin each line with its time")
	flags.DurationVar(&c.since, "since", 0, "Only what is newer than this `duration`, as 5s, 2m or 3h")
	flags.StringVar(&c.sinceTime, "since-time", "", "Only what is newer than this `time` (RFC 3339)")
	flags.Int64Var(&c.tail, "tail", -1, "Only so many lines from the end; -1 prints all")
	flags.Int64Var(&c.limit, "limit-bytes", 0, "At most so many bytes; 0 sets no limit")
	cmd.MarkFlagsMutuallyExclusive("since", "since-time")
	cmd.ValidArgsFunction = completePods(socket, &c.namespace)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c.client, c.out, c.err = api.NewClient(*socket), cmd.OutOrStdout(), cmd.ErrOrStderr()
		return c.run(cmd.Context(), args[0])
	}
	return cmd
}

func onePod(cmd *cobra.Command, args []string) error {
	switch len(args) {
	case 0:
		return fmt.Errorf("which pod? (playlet pods lists them; %s --help shows examples)", cmd.CommandPath())
	case 1:
		return nil
	}
	return fmt.Errorf("one pod at a time, not %s (-c names a container)", strings.Join(args, ", "))
}

func (c *logsCommand) run(ctx context.Context, pod string) error {
	if err := c.settle(); err != nil {
		return err
	}
	namespace, name, err := findPod(ctx, c.client, c.namespace, pod)
	if err != nil {
		return err
	}
	return c.client.Logs(ctx, namespace, name, c.options, c.out, func(note string) { fmt.Fprintln(c.err, note) })
}

// settle makes options of the flags.
func (c *logsCommand) settle() error {
	switch {
	case c.since < 0:
		return fmt.Errorf("--since=%s: it must be more than 0", c.since)
	case c.since > 0:
		c.options.Since = c.now().Add(-c.since)
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

// findPod finds a pod by the name that "playlet pods" shows, or by that in its manifest, to which static pods get the
// node's name; without a namespace, in all.
func findPod(ctx context.Context, client *api.Client, namespace, name string) (ns, full string, err error) {
	all, err := client.Pods(ctx, api.Filter{Namespace: namespace})
	if err != nil {
		return "", "", err
	}
	var exact, short []string
	for i := range all.Pods {
		switch p := all.Pods[i].Pod; {
		case p.Name == name:
			exact = append(exact, p.Namespace+"/"+p.Name)
		case inManifest(name, p):
			short = append(short, p.Namespace+"/"+p.Name)
		}
	}
	if len(exact) == 0 {
		exact = short
	}
	switch len(exact) {
	case 0:
		where := "any namespace"
		if namespace != "" {
			where = fmt.Sprintf("namespace %q", namespace)
		}
		return "", "", fmt.Errorf("there is no pod %q in %s (playlet pods lists them)", name, where)
	case 1:
		ns, full, _ = strings.Cut(exact[0], "/")
		return ns, full, nil
	}
	return "", "", errors.New("several pods have this name: " + strings.Join(exact, ", ") + "; -n names the namespace")
}
