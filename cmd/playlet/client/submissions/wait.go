package submissions

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cmd/playlet/cli"
	"github.com/playlet-dev/playlet/cmd/playlet/client/summary"
	"github.com/playlet-dev/playlet/messages"
)

// startTimeout is how long an agent that is only starting is waited for.
const startTimeout = 10 * time.Second

// errAllDone ends a watch whose condition is satisfied.
var errAllDone = errors.New("all done")

// await waits until done is true for every pod with a result or, when end is "gone", until none is left. It reports their
// progress on stderr, and continues across restarts of the agent.
func (c *submitCommand) await(ctx context.Context, end string, done func(*api.Pod) (bool, error)) error {
	left := map[string]string{} // name by UID
	for uid, p := range c.uids() {
		left[uid] = p.Namespace + "/" + p.PodName
	}
	said := map[string]string{}
	pulling := map[string]*api.Pod{} // by name, pods with periodic progress
	var mu sync.Mutex                // guards the state that take and the progress share
	take := func(change *api.Change) error {
		mu.Lock()
		defer mu.Unlock()
		if end == "gone" {
			c.takeGone(change, left)
		}
		for i := range change.Pods {
			p := &change.Pods[i]
			name, waited := left[string(p.Pod.UID)]
			if !waited {
				continue
			}
			c.progress(said, name, p)
			delete(pulling, name)
			if w := p.Waiting; w != nil && slices.Contains(lengthy, w.Code) {
				pulling[name] = p
			}
			ok, err := done(p)
			if err != nil {
				return err
			}
			if ok {
				delete(left, string(p.Pod.UID))
			}
		}
		if len(left) == 0 {
			return errAllDone
		}
		return nil
	}
	if len(left) == 0 {
		return nil
	}
	ctx, stop := context.WithCancel(ctx)
	var saying sync.WaitGroup
	defer saying.Wait()
	defer stop()
	saying.Go(func() {
		cli.Repeat(ctx, c.ticks, func() {
			mu.Lock()
			defer mu.Unlock()
			for _, name := range slices.Sorted(maps.Keys(pulling)) {
				c.Note(name + ": " + summary.WaitingFor(pulling[name], c.Now()))
			}
		})
	})
	for {
		err := c.Client.Watch(ctx, api.Filter{}, take)
		switch {
		case errors.Is(err, errAllDone):
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("%s did not become %s: %w", strings.Join(slices.Sorted(maps.Values(left)), ", "), end,
				context.Cause(ctx))
		case err != nil && !errors.Is(err, api.ErrStreamEnded) && !errors.Is(err, api.ErrNotRunning):
			return err
		}
		cli.Pause(ctx, cli.ReconnectEvery) // the agent is being restarted
	}
}

// takeGone drops pods that do not exist any more.
func (c *submitCommand) takeGone(change *api.Change, left map[string]string) {
	for _, ref := range change.Gone {
		delete(left, ref.UID)
	}
	if !change.Complete() {
		return
	}
	for uid := range left {
		if !slices.ContainsFunc(change.Pods, func(p api.Pod) bool { return string(p.Pod.UID) == uid }) {
			delete(left, uid)
		}
	}
}

// lengthy lists reasons with periodic progress: pulls, and containers in their grace period.
var lengthy = []string{messages.ReasonPulling, messages.ReasonPullQueued, messages.ReasonKilling}

// progress reports a pod's state when it has changed.
func (c *submitCommand) progress(said map[string]string, name string, p *api.Pod) {
	s := api.Summarize(p)
	text := fmt.Sprintf("%s: %s, %d of %d ready", name, cli.Plain(s.Status), s.Ready, s.Total)
	if why := summary.WaitingFor(p, time.Time{}); why != "" {
		text += ": " + why
	}
	if c.restarting && slices.ContainsFunc(p.Pod.Status.ContainerStatuses, func(s v1.ContainerStatus) bool {
		return s.State.Terminated != nil
	}) { // as the user asked: it is no error
		text = fmt.Sprintf("%s: Restarting, %d of %d ready", name, s.Ready, s.Total)
	}
	if said[name] != text {
		said[name] = text
		c.Note(text)
	}
}
