package dev

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
)

// errSeen ends a watch whose condition is satisfied.
var errSeen = errors.New("seen")

// watch follows the agent's pods until ctx ends or f has seen enough. A stream that breaks off is begun again.
func (n *node) watch(ctx context.Context, f func(*api.Pods) error) error {
	client := api.NewClient(n.plan.AdminSocket)
	for {
		now := &api.Pods{}
		err := client.Watch(ctx, api.Filter{}, func(c *api.Change) error {
			apply(now, c)
			return f(now)
		})
		broken := errors.Is(err, api.ErrStreamEnded) || errors.Is(err, api.ErrNotRunning)
		if ctx.Err() != nil || err != nil && !broken {
			return err
		}
		select {
		case err := <-n.agent.Failed:
			return fmt.Errorf("the agent has given up: %w", err)
		case <-ctx.Done():
			return nil
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// apply updates the known state with a change.
func apply(now *api.Pods, c *api.Change) {
	if c.Full {
		*now = api.Pods{Node: now.Node}
	}
	now.At = c.At
	if c.Node != nil {
		now.Node = *c.Node
	}
	uid := func(p *api.Pod) string { return string(p.Pod.UID) }
	gone := map[string]bool{}
	for _, ref := range c.Gone {
		gone[ref.UID] = true
	}
	for i := range c.Pods {
		gone[uid(&c.Pods[i])] = true // replaced
	}
	now.Pods = slices.DeleteFunc(now.Pods, func(p api.Pod) bool { return gone[uid(&p)] })
	now.Pods = append(now.Pods, c.Pods...)
	slices.SortFunc(now.Pods, func(a, b api.Pod) int {
		return strings.Compare(a.Pod.Namespace+"/"+a.Pod.Name, b.Pod.Namespace+"/"+b.Pod.Name)
	})
}

// stay prints changes until ctx ends or the agent gives up. With Once there is nothing more to see.
func (n *node) stay(ctx context.Context) error {
	if n.plan.Once {
		return nil
	}
	if n.plan.Tour {
		if err := n.tour(ctx); err != nil {
			return err
		}
	}
	n.progress.Line("%s", n.directions())
	seen := map[string]*printedState{}
	return n.watch(ctx, func(now *api.Pods) error {
		for _, line := range n.newLines(now, seen) {
			n.printEvent(line)
		}
		n.printAddress(now)
		return nil
	})
}

// printAddress prints the sample pod's address after a change: a recreated sandbox has another address.
func (n *node) printAddress(now *api.Pods) {
	p := n.sample(now)
	if n.url == "" || p == nil || !ready(p) {
		return
	}
	if url := sampleURL(p); url != n.url {
		n.url = url
		n.printEvent(reach + " " + fetch(url))
	}
}

// printEvent prints an event with its time.
func (n *node) printEvent(what string) {
	n.progress.Line("%s  %s", time.Now().Format(time.TimeOnly), what)
}

// printedState is the printed state of a subject.
type printedState struct {
	line string
	// causes has all reasons why a pod did not become ready since it last was. Tries alternate with pauses between them, and each
	// reason is printed once.
	causes map[string]bool
}

// newLines returns the lines that have not been printed yet.
func (n *node) newLines(now *api.Pods, seen map[string]*printedState) []string {
	var out []string
	there := map[string]bool{}
	say := func(subject, text, cause string) {
		there[subject] = true
		t := seen[subject]
		if t == nil || cause == "" {
			seen[subject] = &printedState{line: text, causes: map[string]bool{}}
		}
		if t != nil && (t.line == text || t.causes[cause]) {
			return
		}
		seen[subject].line, seen[subject].causes[cause] = text, cause != ""
		out = append(out, text)
	}
	for i := range now.Pods {
		p := &now.Pods[i]
		say("pod "+string(p.Pod.UID), fmt.Sprintf("%s/%s  %s", p.Pod.Namespace, p.Pod.Name, n.Status(p)), p.Cause)
	}
	for _, note := range n.Notes(&now.Node) {
		say(note, note, "")
	}
	for subject, t := range seen {
		if there[subject] {
			continue
		}
		delete(seen, subject)
		if strings.HasPrefix(subject, "pod ") {
			name, _, _ := strings.Cut(t.line, "  ")
			out = append(out, name+"  gone")
		} else {
			what, _, _ := strings.Cut(t.line, ": ")
			out = append(out, "no longer: "+what)
		}
	}
	return out
}
