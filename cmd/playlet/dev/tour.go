package dev

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// tourStep is one step of the tour: a subject, and the commands that show it.
type tourStep struct {
	title, text string
	commands    []tourCommand
}

// tourCommand is a command line. It is repeated, within tourTime, until it prints until.
type tourCommand struct{ line, until string }

// tourTime bounds the wait for the expected output of a command.
const tourTime = 30 * time.Second

func (n *node) tourSteps() []tourStep {
	actor := "pods/" + sampleName
	return []tourStep{
		{"start", "The agent found the manifest of pod hello and started it. This is where the time of its start went.",
			[]tourCommand{{"pods", "Running"}, {"trace hello --critical-path", "ready"}}},
		{"watch", "Everything in the agent is an actor with a mailbox. Pod hello is one, and so is its container.",
			[]tourCommand{{"actors", "hello"}}},
		{"explain", "This pod needs a ConfigMap that is not there. The agent names the cause, and what would fix it.",
			[]tourCommand{{"run -f " + n.folder.at(brokenFile), "broken"}, {"explain broken", "greeting does not exist"}}},
		{"break", "Chaos kills the actor of pod hello. Another one takes its place; the container runs on, without a restart.",
			[]tourCommand{{"chaos kill " + actor, ""}, {"actors " + actor, "   1  "}, {"pods hello", "Running"}}},
		{"heal", "With the ConfigMap, the broken pod starts by itself.",
			[]tourCommand{{"run -f " + n.folder.at(greetingFile), "greeting"}, {"pods broken", "Running"}}},
	}
}

// tour shows the node in steps. After each it waits for Enter.
func (n *node) tour(ctx context.Context) error {
	steps := n.tourSteps()
	for i, s := range steps {
		n.progress.Line("\n%d of %d: %s\n%s", i+1, len(steps), s.title, s.text)
		for _, c := range s.commands {
			n.progress.Line("\n$ playlet %s", c.line)
			out, err := n.shown(ctx, c)
			n.progress.Line("%s", out)
			if err != nil {
				return fmt.Errorf("the tour: playlet %s: %w", c.line, err)
			}
		}
		if i+1 < len(steps) {
			n.progress.Line("\nEnter leads to the next step: %s", steps[i+1].title)
		} else {
			n.progress.Line("\nEnter ends the tour; the node runs on, for what you would like to try")
		}
		select {
		case <-n.entered:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// shown runs a command until it prints the expected text, and returns its output.
func (n *node) shown(ctx context.Context, c tourCommand) (string, error) {
	for began := time.Now(); ; {
		var out bytes.Buffer
		err := n.Command(ctx, append(strings.Fields(c.line), "--admin-socket="+n.plan.AdminSocket), &out)
		text := strings.TrimRight(out.String(), "\n")
		switch {
		case err == nil && strings.Contains(text, c.until):
			return text, nil
		case ctx.Err() != nil:
			return text, ctx.Err()
		case time.Since(began) < tourTime:
		case err != nil:
			return text, err
		default:
			return text, errors.New("it does not show " + c.until)
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// noMoreLines is sent by the outer process when its standard input has ended: later steps do not wait.
const noMoreLines = 'E'

// readEntered reads from the outer process one end of line for each typed line. It returns when the other end is closed.
func readEntered(from io.Reader, entered chan<- struct{}) {
	one := make([]byte, 1)
	for {
		if _, err := from.Read(one); err != nil {
			return
		}
		if one[0] == noMoreLines {
			close(entered)
			_, _ = io.Copy(io.Discard, from)
			return
		}
		select {
		case entered <- struct{}{}:
		default: // typed ahead, more than a tour has steps
		}
	}
}

// passLines sends an end of line for each line of in, and noMoreLines at its end.
func passLines(in io.Reader, to io.Writer) {
	buf := make([]byte, 256)
	for {
		n, err := in.Read(buf)
		for range bytes.Count(buf[:n], []byte("\n")) {
			_, _ = to.Write([]byte("\n")) // the run may be over
		}
		if err != nil {
			_, _ = to.Write([]byte{noMoreLines})
			return
		}
	}
}
