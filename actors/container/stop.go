package container

import (
	"context"
	"fmt"
	"time"

	"github.com/playlet-dev/playlet/actors/internal/host"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
)

// minGrace is what is left for the signal when the pre-stop hook has used the grace period up; the kubelet's.
const minGrace = 2 * time.Second

// stop runs the pre-stop hook, has the runtime end the container within what is left of the grace, and reads the end.
// A stop that is under way is joined: a second one would wait the whole grace again.
func stop(ctx context.Context, h *host.Host, m messages.StopContainer) stopDone {
	key := fmt.Sprintf("%s/stop/%s", m.UID, m.Fact.ID)
	fact, err := cri.Run(ctx, h.Ops, key, m.Grace+h.Reap(3), func(ctx context.Context) (messages.ContainerFact, error) {
		return stopAndRead(ctx, h, m)
	})
	return stopDone{id: m.Fact.ID, fact: fact, failed: host.Joined(err)}
}

func stopAndRead(ctx context.Context, h *host.Host, m messages.StopContainer) (messages.ContainerFact, error) {
	began := time.Now()
	if hook := preStop(m); hook != nil && m.Fact.State == messages.ContainerRunning {
		hctx, cancel := context.WithTimeout(ctx, m.Grace)
		// A failed hook, which is told in the log, does not keep the container from being stopped; it only loses its chance.
		_ = runHook(hctx, h, m, hook)
		cancel()
	}
	grace := max(m.Grace-time.Since(began), min(minGrace, m.Grace))
	if err := host.Ignore(h.CRI.StopContainer(ctx, m.Fact.ID, grace)); err != nil {
		return m.Fact, err
	}
	fact, err := readFact(ctx, h, m.Fact.ID, m.Fact.SandboxID)
	switch {
	case cri.IsNotFound(err):
		return gone(m.Fact), nil
	case err != nil:
		return m.Fact, err
	case fact.State == messages.ContainerCreated:
		return fact, nil // it never ran, and runtimes leave it as it is: there is nothing to end
	case fact.State != messages.ContainerExited:
		return fact, fmt.Errorf("the runtime says that container %s is stopped, but also that it is %s", m.Fact.ID, fact.State)
	}
	return fact, nil
}
