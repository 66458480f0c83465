// Package hooks runs the lifecycle hooks of containers, for the actors that start and stop containers.
package hooks

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/playlet-dev/playlet/actors/internal/endpoint"
	"github.com/playlet-dev/playlet/actors/internal/host"
	"github.com/playlet-dev/playlet/actors/internal/metrics"
	"github.com/playlet-dev/playlet/actors/internal/podspec"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// Limit bounds a hook. The API has no limit: a hook runs until it ends or its container does.
const Limit = 24 * time.Hour

// PreStopDone is the result of a container's pre-stop hook.
type PreStopDone struct {
	ID     string // of the container
	Failed bool
	// Fallback is the server that answered an HTTPS hook with plain HTTP, or "".
	Fallback string
}

// preStopOf returns the container's pre-stop hook with its ports, from its spec or, if that is gone, from the annotations that
// the container was created with. Annotations that cannot be read have no hook: the container is stopped all the same.
func preStopOf(m messages.StopContainer) (*v1.LifecycleHandler, []v1.ContainerPort) {
	if m.Spec == nil {
		return translate.Annotated[v1.LifecycleHandler](m.Fact.Annotations, cri.AnnotationPreStopHandler),
			ptr.Deref(translate.Annotated[[]v1.ContainerPort](m.Fact.Annotations, cri.AnnotationPorts), nil)
	}
	if m.Spec.Lifecycle == nil {
		return nil, nil
	}
	return m.Spec.Lifecycle.PreStop, m.Spec.Ports
}

// PreStop runs the container's pre-stop hook, waits for it within the grace period, and reports whether it failed to end well
// in that time. The hook itself runs on until its container has ended, as with the kubelet; see EndHooks. It runs once: a hook in
// progress is joined. A hook that has ended or used up its grace period is recorded in the container's folder and not awaited
// again, even after a restart of the agent.
func PreStop(ctx context.Context, h *host.Host, m messages.StopContainer, grace *host.Grace) PreStopDone {
	done := PreStopDone{ID: m.Fact.ID}
	hook, ports := preStopOf(m)
	path := filepath.Join(h.ContainerDir(m.UID, m.Name), "pre-stop.json")
	if hook == nil || m.Fact.State != messages.ContainerRunning {
		return done
	}
	if _, over := RecordOf(path, m.Fact.ID); over {
		return done
	}
	ctx, cancel := grace.Context(ctx)
	defer cancel()
	over := func() {
		if err := (Record{ID: m.Fact.ID}).Save(path); err != nil {
			supervisors.LogOf(ctx).Warn("the end of a pre-stop hook cannot be noted; it may run again", "error", err)
		}
	}
	var err error
	key := host.PreStopKey(m.UID, m.Fact.ID)
	done.Fallback, err = cri.Run(ctx, h.Ops, key, m.Grace+Limit, func(ctx context.Context) (string, error) {
		defer over()
		return Run(ctx, h, m, hook, ports)
	})
	late := errors.Is(context.Cause(ctx), host.ErrGraceOver)
	if late {
		over()
	}
	done.Failed = err != nil && (late || !errors.Is(err, context.Canceled)) // another stop with less time cancels it
	return done
}

// Run runs a pre-stop hook to its end, or to the context's, and logs its failure.
func Run(
	ctx context.Context, h *host.Host, m messages.StopContainer, hook *v1.LifecycleHandler, ports []v1.ContainerPort,
) (fallback string, err error) {
	fallback, err = Call(ctx, h, m, hook, ports)
	if err != nil {
		log := supervisors.LogOf(ctx)
		if m.Pod != nil {
			log = log.With("pod", m.Pod.Namespace+"/"+m.Pod.Name)
		}
		log.Warn("pre-stop hook failed; stopping the container anyway",
			"container", m.Name, "id", m.Fact.ID, "error", FirstBytes(err))
	}
	return fallback, err
}

// Call runs a hook. fallback is the server that answered an HTTPS hook with plain HTTP, or "".
func Call(
	ctx context.Context, h *host.Host, m messages.StopContainer, hook *v1.LifecycleHandler, ports []v1.ContainerPort,
) (fallback string, err error) {
	if hook.Sleep == nil { // a sleep uses no shared resources
		leave, err := h.Hooks.Enter(ctx, m.UID)
		if err != nil {
			return "", err
		}
		defer leave()
	}
	switch {
	case hook.Exec != nil:
		// It takes no slot: its grace period would run out in the queue.
		result, err := h.CRI.ExecSync(cri.WithoutSlot(ctx), m.Fact.ID, hook.Exec.Command, m.Grace+Limit)
		if err != nil {
			return "", err
		}
		if result.ExitCode != 0 {
			// Its output may contain a secret, and readers of Events, logs and statuses may have no access to secrets.
			return "", fmt.Errorf("the command ended with code %d", result.ExitCode)
		}
		return "", nil
	case hook.HTTPGet != nil:
		return runHTTP(ctx, m, hook.HTTPGet, ports)
	case hook.Sleep != nil:
		t := time.NewTimer(podspec.Grace(hook.Sleep.Seconds))
		defer t.Stop()
		select {
		case <-t.C:
			return "", nil
		case <-ctx.Done():
			metrics.CutSleeps.WithLabelValues().Inc()
			return "", ctx.Err()
		}
	default:
		return "", errors.New("the hook has no handler")
	}
}

// FirstBytes returns the beginning of an error of an application or the runtime, which is enough to identify it.
func FirstBytes(said error) string {
	text := said.Error()
	return strings.ToValidUTF8(strings.TrimSpace(text[:min(len(text), 256)]), "")
}

// userAgent is the User-Agent header of hooks.
const userAgent = "kube-lifecycle/playlet"

// runHTTP makes the hook's request. As in the kubelet, every response counts as success. If the server speaks plain HTTP and the
// hook asks for HTTPS, the request is repeated over HTTP without its Authorization header. fallback is such a server.
func runHTTP(ctx context.Context, m messages.StopContainer, get *v1.HTTPGetAction, ports []v1.ContainerPort) (
	fallback string, err error) {
	target, err := endpoint.URL(get, m.IPs, ports)
	if err != nil {
		return "", err
	}
	answer, err := endpoint.Get(ctx, target, get.HTTPHeaders, userAgent)
	if errors.Is(err, http.ErrSchemeMismatch) {
		metrics.HTTPFallbacks.WithLabelValues().Inc()
		fallback, target.Scheme = target.Host, "http"
		public := slices.DeleteFunc(slices.Clone(get.HTTPHeaders),
			func(h v1.HTTPHeader) bool { return strings.EqualFold(h.Name, "Authorization") })
		answer, err = endpoint.Get(ctx, target, public, userAgent)
	}
	if answer.Code == 0 {
		return "", err
	}
	if answer.Code >= http.StatusBadRequest {
		supervisors.LogOf(ctx).Info("the request of a hook was answered with an error status, which counts as success",
			"container", m.Name, "at", endpoint.Place(target), "code", answer.Code)
	}
	return fallback, nil
}
