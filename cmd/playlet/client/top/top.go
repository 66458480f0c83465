// Package top watches the node on the terminal, and prints the figures of pods and of the node.
package top

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cmd/playlet/cli"
	"github.com/playlet-dev/playlet/cmd/playlet/client/actors"
	"github.com/playlet-dev/playlet/cmd/playlet/client/base"
	"github.com/playlet-dev/playlet/cmd/playlet/client/names"
	"github.com/playlet-dev/playlet/cmd/playlet/client/pods"
	"github.com/playlet-dev/playlet/cmd/playlet/client/screen"
	"github.com/playlet-dev/playlet/cmd/playlet/client/terminal"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/chaos"
)

var topLong = `Show the live state of the node: its pods with their problems and usage, and its actors.

Keys:
` + "  " + strings.ReplaceAll(strings.TrimSpace(screen.Keyboard), "\n", "\n  ") + `

Without a terminal, and with --once, the pods are printed as one table.`

const topExample = `  # Watch the node
  playlet top

  # One table, for scripts
  playlet top --once | grep -v Running

  # As kubectl prints it
  playlet top pods -n kube-system --sort-by=cpu
  playlet top node`

// leastTopInterval is between two looks at the agent, however short an interval is asked for.
const leastTopInterval = 200 * time.Millisecond

// NewCommand is "playlet top".
func NewCommand() *cobra.Command {
	c := &base.Command{}
	var once bool
	every := 2 * time.Second
	cmd := &cobra.Command{
		Use: "top", Short: "Watch pods and actors on the terminal", Long: topLong, Example: topExample, Args: topArguments,
	}
	cmd.Flags().BoolVar(&once, "once", false, "Print the pods as one table, and exit")
	cmd.Flags().DurationVar(&every, "interval", every, "How `often` to refresh")
	cmd.AddCommand(newTopPodsCommand(), newTopNodeCommand())
	return c.Runs(cmd, func(ctx context.Context, _ []string) error {
		if once || !cli.IsTerminal(c.In) || !cli.IsTerminal(c.Out) || os.Getenv("TERM") == "dumb" {
			return printTop(ctx, c)
		}
		in, out := c.In.(*os.File), c.Out.(*os.File) // terminals are
		t := &top{client: c.Client, in: in, out: out, every: max(every, leastTopInterval), now: time.Now}
		t.data.colour = cli.WantsColour(out)
		return t.run(ctx)
	})
}

func topArguments(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%q is none of pods and node (playlet top --help)", args[0])
	}
	return nil
}

// top is one run of "playlet top" on a terminal. Its fields belong to the loop; other goroutines send it changes.
type top struct {
	client  *api.Client
	in, out *os.File
	every   time.Duration
	now     func() time.Time

	state   screen.State
	data    topData
	changes chan func()
	panics  chan any
	beside  sync.WaitGroup
}

const (
	topWidth, topHeight = 80, 24 // for a terminal of unknown size
	topSpeech           = 10 * time.Second
	topLogLines         = 500
)

var errGone = errors.New("the pod is gone")

// run lasts until a person quits, or ctx ends. The terminal is as before then, whatever happened.
func (t *top) run(ctx context.Context) error {
	if err := t.look(ctx); err != nil { // a missing agent is reported before the screen is drawn
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer t.beside.Wait()
	defer stop()
	restore, err := terminal.MakeRaw(t.in)
	if err != nil {
		return err
	}
	defer restore()
	fmt.Fprint(t.out, screen.Begin)
	defer fmt.Fprint(t.out, screen.Leave)
	sizes, unwatch := terminal.WatchSize(ctx, t.out)
	defer unwatch()
	ends := make(chan os.Signal, 1)
	signal.Notify(ends, syscall.SIGHUP, syscall.SIGQUIT)
	defer signal.Stop(ends)
	t.changes, t.panics = make(chan func()), make(chan any)
	sent := make(chan []byte)
	go t.read(ctx, sent) // not awaited: only a key ends the read of a terminal
	t.start(ctx, func() { t.poll(ctx) })
	t.state = t.state.Resize(topWidth, topHeight).With(t.data.content(t.now()))
	for {
		fmt.Fprint(t.out, screen.Draw(t.state.Frame()))
		select {
		case size := <-sizes:
			t.state = t.state.Resize(int(size.Width), int(size.Height))
		case keys, more := <-sent:
			if quit := t.press(ctx, screen.Keys(keys)); quit || !more {
				return nil
			}
		case change := <-t.changes:
			change()
		case p := <-t.panics:
			panic(p)
		case end := <-ends:
			number, _ := end.(syscall.Signal)
			return &cli.ExitError{Code: 128 + int(number)}
		case <-ctx.Done():
			return nil
		}
	}
}

// start runs f beside the loop. A panic of it is the loop's, which gives the terminal back.
func (t *top) start(ctx context.Context, f func()) {
	t.beside.Go(func() {
		defer func() {
			if p := recover(); p != nil {
				select {
				case t.panics <- fmt.Sprintf("%v\n%s", p, debug.Stack()):
				case <-ctx.Done():
				}
			}
		}()
		f()
	})
}

// change has the loop do something.
func (t *top) change(ctx context.Context, f func()) {
	select {
	case t.changes <- f:
	case <-ctx.Done():
	}
}

func (t *top) read(ctx context.Context, sent chan<- []byte) {
	defer close(sent)
	for {
		buf := make([]byte, 256)
		n, err := t.in.Read(buf)
		if err != nil {
			return
		}
		select {
		case sent <- buf[:n]:
		case <-ctx.Done():
			return
		}
	}
}

// look asks the agent for all, for the first time.
func (t *top) look(ctx context.Context) error {
	pods, err := t.client.Pods(ctx, api.Filter{})
	if err != nil {
		return err
	}
	actors, err := t.client.Actors(ctx)
	if err != nil {
		return err
	}
	t.data.pods, t.data.actors = *pods, *actors
	return nil
}

// poll asks the agent again and again. Figures take their time, and are asked for beside the rest.
func (t *top) poll(ctx context.Context) {
	t.start(ctx, func() {
		for {
			figures, err := t.client.Figures(ctx)
			if err == nil {
				t.change(ctx, func() {
					t.data.before, t.data.figures = t.data.figures, *figures
					t.state = t.state.With(t.data.content(t.now()))
				})
			}
			if !cli.Pause(ctx, t.every) {
				return
			}
		}
	})
	for cli.Pause(ctx, t.every) {
		pods, err := t.client.Pods(ctx, api.Filter{})
		actors := (*api.Actors)(nil)
		if err == nil {
			actors, err = t.client.Actors(ctx)
		}
		t.change(ctx, func() {
			t.data.problem = ""
			if err != nil {
				t.data.problem = err.Error() + "; what is shown is old"
			} else {
				t.data.pods, t.data.actors = *pods, *actors
			}
			t.state = t.state.With(t.data.content(t.now()))
			if c := t.state.Again(); c.List == topPods || c.Verb == screen.Trace { // an inspection is a message to the actor
				t.do(ctx, c)
			}
		})
	}
}

// press handles keys, and reports whether one of them was to quit.
func (t *top) press(ctx context.Context, keys []screen.Key) (quit bool) {
	for _, key := range keys {
		var c screen.Command
		if t.state, c = t.state.Key(key); c.Verb == screen.Quit {
			return true
		}
		t.do(ctx, c)
	}
	return false
}

// do carries a command out, beside the loop.
func (t *top) do(ctx context.Context, c screen.Command) {
	if c.Verb == screen.None {
		return
	}
	target, name := messages.Address(c.ID), c.ID
	var pod *api.Pod
	if c.List == topPods {
		if pod = t.data.pod(c.ID); pod == nil {
			return // it has just gone
		}
		target, name = messages.PodAddress(c.ID), names.Full(pod)
	} else if i := slices.IndexFunc(t.data.actors.Actors, func(a api.Actor) bool { return a.Path.String() == c.ID }); i >= 0 {
		target, name = t.data.actors.Actors[i].Path, actors.ShownPath(&t.data.actors.Actors[i])
	}
	asked := func(what string, ask func(ctx context.Context, out io.Writer) error) {
		t.start(ctx, func() {
			asking, cancel := context.WithTimeout(ctx, topSpeech)
			defer cancel()
			var text bytes.Buffer
			if err := ask(asking, &text); err != nil {
				fmt.Fprintln(&text, messages.OneLine(err))
			}
			lines := strings.Split(strings.TrimRight(strings.ReplaceAll(text.String(), "\t", "    "), "\n"), "\n")
			for i := range lines { // a log may contain control sequences
				lines[i] = cli.Plain(lines[i])
			}
			t.change(ctx, func() { t.state = t.state.Show(c, what+" "+name, lines) })
		})
	}
	switch c.Verb {
	case screen.Open:
		if c.List == topPods {
			asked("explain pod", func(ctx context.Context, out io.Writer) error { return t.explain(ctx, c.ID, name, out) })
			return
		}
		asked("inspect", func(ctx context.Context, out io.Writer) error {
			in, err := t.client.Inspect(ctx, target)
			if err != nil {
				return err
			}
			return cli.PrintObject(out, in, "yaml")
		})
	case screen.Trace:
		asked("trace", func(ctx context.Context, out io.Writer) error {
			if c.List == topPods {
				return actors.PrintTrace(ctx, t.client, api.TraceOptions{Pod: c.ID}, out)
			}
			return actors.PrintTrace(ctx, t.client, api.TraceOptions{Actor: target.String()}, out)
		})
	case screen.Logs:
		asked("logs of", func(ctx context.Context, out io.Writer) error {
			o := api.LogOptions{UID: c.ID, Tail: new(int64(topLogLines))}
			return t.client.Logs(ctx, pod.Pod.Namespace, pod.Pod.Name, o, out, func(note string) { fmt.Fprintln(out, note) })
		})
	case screen.Descr:
		asked("describe pod", func(ctx context.Context, out io.Writer) error {
			return pods.Describe(ctx, t.client, pod, out, t.now())
		})
	case screen.Target, screen.Kill:
		t.start(ctx, func() { t.kill(ctx, c, target, name) })
	case screen.None, screen.Quit, screen.Help:
	}
}

func (t *top) explain(ctx context.Context, uid, fullName string, out io.Writer) error {
	namespace, name, _ := strings.Cut(fullName, "/")
	got, err := t.client.Explain(ctx, api.Filter{Namespace: namespace, Name: name})
	if err != nil {
		return err
	}
	for i := range got.Items {
		if e := &got.Items[i]; e.UID == uid {
			e.Messages = nil // the trace has them
			return pods.PrintExplanation(out, e, t.now())
		}
	}
	return errGone
}

// kill asks a person whether an actor is to be killed or, where the answer was yes, kills it.
func (t *top) kill(ctx context.Context, c screen.Command, target messages.Address, name string) {
	rule := chaos.Rule{Verb: chaos.Kill, Target: target.String(), Count: 1, Probability: 1, Seed: chaos.RandomSeed()}
	added, err := t.client.AddChaos(ctx, rule, c.Verb == screen.Target)
	t.change(ctx, func() {
		switch {
		case err != nil:
			t.state = t.state.Note(messages.OneLine(err))
		case c.Verb == screen.Target:
			t.state = t.state.Ask(c, "Kill the actor of "+name+"? Its supervisor starts it again, and no container is touched.")
		default:
			t.state = t.state.Note(fmt.Sprintf("rule %d kills %s at its next message (playlet chaos list)", added.ID, name))
		}
	})
}
