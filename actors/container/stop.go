package container

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
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

// minGrace is what is left for the signal when the pre-stop hook has used the grace period up; the kubelet's.
const minGrace = 2 * time.Second

// stop runs the pre-stop hook, has the runtime end the container within what is left of the grace, and reads the end.
// A stop that is under way is joined: a second one would wait the whole grace again. One that has less time than those
// under way is begun beside them: the runtime goes by the shortest. The hook has had its time then.
func stop(ctx context.Context, h *host.Host, m messages.StopContainer) stopDone {
	key, hurried := stopKey(h.Ops, m, time.Now())
	if hurried {
		h.Ops.CutOff(preStopKey(m))
	}
	done, err := cri.Run(ctx, h.Ops, key, m.Grace+h.Reap(3), func(ctx context.Context) (stopDone, error) {
		return hookAndStop(ctx, h, m, hurried), nil
	})
	if err = host.Joined(err); err != nil {
		return stopDone{id: m.Fact.ID, fact: m.Fact, failed: err}
	}
	return done
}

// stopKey is the key of the stop to join, or to begin, now; hurried says that another is under way that has more time. Keys
// tell by when.
func stopKey(ops *cri.Operations, m messages.StopContainer, now time.Time) (key string, hurried bool) {
	until, prefix := now.Add(m.Grace), stopPrefix(m)
	for _, other := range ops.InFlight(prefix) {
		ms, err := strconv.ParseInt(strings.TrimPrefix(other, prefix), 10, 64)
		if err == nil && !time.UnixMilli(ms).After(until.Add(cri.GraceSlack)) {
			return other, false
		}
		hurried = true
	}
	return prefix + strconv.FormatInt(until.UnixMilli(), 10), hurried
}

// stopPrefix begins the keys of all stops of the container.
func stopPrefix(m messages.StopContainer) string { return fmt.Sprintf("%s/stop/%s/", m.UID, m.Fact.ID) }

func preStopKey(m messages.StopContainer) string { return host.PreStopKey(m.UID, m.Fact.ID) }

// hookAndStop runs the pre-stop hook, and ends the container however that went.
func hookAndStop(ctx context.Context, h *host.Host, m messages.StopContainer, hurried bool) stopDone {
	began, done := time.Now(), stopDone{id: m.Fact.ID}
	if !hurried && !m.NoHook {
		done.hook = runPreStop(ctx, h, m) // which does not keep the container from being stopped
	}
	done.fact, done.failed = stopAndRead(ctx, h, m, began)
	return done
}

// endPauses are the waits for the status of a stopped container. If the container's process has just exited, containerd answers
// StopContainer at once, and updates the status only after it has handled the exit.
var endPauses = []time.Duration{
	20 * time.Millisecond, 100 * time.Millisecond, 500 * time.Millisecond, 2 * time.Second, 5 * time.Second,
}

func stopAndRead(ctx context.Context, h *host.Host, m messages.StopContainer, began time.Time) (messages.ContainerFact, error) {
	grace := max(m.Grace-time.Since(began), min(minGrace, m.Grace))
	if err := host.Ignore(h.CRI.StopContainer(ctx, m.Fact.ID, grace)); err != nil {
		return m.Fact, err
	}
	fact, err := readFact(ctx, h, m.Fact.ID, m.Fact.SandboxID)
	for _, pause := range endPauses {
		if err != nil || fact.State == messages.ContainerExited || fact.State == messages.ContainerCreated {
			break
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		fact, err = readFact(ctx, h, m.Fact.ID, m.Fact.SandboxID)
	}
	switch {
	case cri.IsNotFound(err):
		return m.Fact.Removed(time.Now()), nil
	case err != nil:
		return m.Fact, err
	case fact.State == messages.ContainerCreated:
		return fact, nil // it never ran, and runtimes leave it as it is: there is nothing to end
	case fact.State != messages.ContainerExited:
		return fact, fmt.Errorf("the runtime says that container %s is stopped, but also that it is %s", m.Fact.ID, fact.State)
	}
	return fact, nil
}

// preStopOf is the container's pre-stop hook with its ports: of its spec or, where that is gone, of the annotations it was made
// with. What cannot be read there cannot be run; the container is stopped all the same.
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

// runPreStop runs the container's pre-stop hook, waits for it within the grace period, and reports whether it failed to end well
// in that time. The hook itself runs on until its container has ended, as with the kubelet; see EndHooks. It runs once: one in
// progress is joined. One that has ended or used its grace period up is noted in the container's folder and not awaited again,
// not even after a restart of the agent.
func runPreStop(ctx context.Context, h *host.Host, m messages.StopContainer) preStopDone {
	done := preStopDone{id: m.Fact.ID}
	hook, ports := preStopOf(m)
	path := filepath.Join(h.ContainerDir(m.UID, m.Name), "pre-stop.json")
	if hook == nil || m.Fact.State != messages.ContainerRunning || noted(path, m.Fact.ID) {
		return done
	}
	ctx, cancel := context.WithTimeout(ctx, m.Grace)
	defer cancel()
	over := func() {
		if err := note(path, m.Fact.ID); err != nil {
			supervisors.LogOf(ctx).Warn("the end of a pre-stop hook cannot be noted; it may run again", "error", err)
		}
	}
	var err error
	done.fallback, err = cri.Run(ctx, h.Ops, preStopKey(m), m.Grace+hookLimit, func(ctx context.Context) (string, error) {
		defer over()
		return runHook(ctx, h, m, hook, ports)
	})
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		over()
	}
	done.failed = err != nil && !errors.Is(err, context.Canceled) // which is another stop, that has less time
	return done
}

// runHook runs a pre-stop hook to its end, or to the context's, and says in the log where it failed.
func runHook(
	ctx context.Context, h *host.Host, m messages.StopContainer, hook *v1.LifecycleHandler, ports []v1.ContainerPort,
) (fallback string, err error) {
	fallback, err = callHook(ctx, h, m, hook, ports)
	if err != nil {
		log := supervisors.LogOf(ctx)
		if m.Pod != nil {
			log = log.With("pod", m.Pod.Namespace+"/"+m.Pod.Name)
		}
		log.Warn("pre-stop hook failed; the container is stopped all the same",
			"container", m.Name, "id", m.Fact.ID, "error", firstBytes(err))
	}
	return fallback, err
}

// callHook runs a hook. fallback is the server that answered one by HTTPS with plain HTTP; empty: none did.
func callHook(
	ctx context.Context, h *host.Host, m messages.StopContainer, hook *v1.LifecycleHandler, ports []v1.ContainerPort,
) (fallback string, err error) {
	if hook.Sleep == nil { // which takes nothing that others need
		leave, err := h.Hooks.Enter(ctx, m.UID)
		if err != nil {
			return "", err
		}
		defer leave()
	}
	switch {
	case hook.Exec != nil:
		// It spends the grace period, which runs while others have the slots: it takes none.
		result, err := h.CRI.ExecSync(cri.WithoutSlot(ctx), m.Fact.ID, hook.Exec.Command, m.Grace+hookLimit)
		if err != nil {
			return "", err
		}
		if result.ExitCode != 0 {
			// What it printed may be a secret, and who reads Events, logs and statuses need not be who may read that.
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

// firstBytes is the beginning of what an application or the runtime said: enough to know what is meant.
func firstBytes(said error) string {
	text := said.Error()
	return strings.ToValidUTF8(strings.TrimSpace(text[:min(len(text), 256)]), "")
}

// userAgent is what the requests of hooks call themselves.
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
