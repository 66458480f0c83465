package eviction

import (
	"context"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/eviction/oomkill"
	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

const (
	// killTimeout bounds one wait for a kill; the next follows.
	killTimeout = 10 * time.Minute
	// logRetry is the delay before a failed log is read again.
	logRetry = time.Minute
)

type (
	killRead struct {
		kill oomkill.Kill
		err  error
		// counted is true if the kernel's log could not be read.
		counted bool
	}
	killDue struct{}
)

// awaitKill waits for the kernel's next out-of-memory kill.
func (a *actor) awaitKill(ctx supervisors.Context) { a.awaitNext(ctx, a.opts.NextKill, false) }

func (a *actor) awaitNext(ctx supervisors.Context, next func(context.Context) (oomkill.Kill, error), counted bool) {
	if next == nil {
		return
	}
	ctx.Do(supervisors.Work{Name: "await a kill by the kernel", Timeout: killTimeout, Routine: true,
		Run: func(ctx context.Context) any {
			kill, err := next(ctx)
			if err != nil && ctx.Err() != nil {
				return killDue{} // the wait timed out
			}
			return killRead{kill, err, counted}
		}})
}

func (a *actor) onKill(ctx supervisors.Context, m killRead) {
	if m.err != nil {
		source, logged, counts := "what the runtime says of containers", &a.kernelLog, !m.counted && a.opts.NextCounted != nil
		if counts {
			source = "the counters of cgroups"
		} else if m.counted {
			logged = &a.killCounts
		}
		if text := m.err.Error(); text != *logged {
			ctx.Log().Warn("cannot read OOM kills from the kernel log", "readInstead", source, "error", text)
			*logged = text
		}
		if counts {
			a.awaitNext(ctx, a.opts.NextCounted, true)
			return
		}
		ctx.After(logRetry, killDue{})
		return
	}
	if a.killCounts = ""; !m.counted {
		a.kernelLog = ""
	}
	k := m.kill
	ctx.Log().Warn("the kernel killed a process because it was out of memory", "process", k.Process, "pid", k.PID,
		"cgroup", k.Group, "limitOf", k.Limited)
	if k.Limited == "" {
		if a.opts.NodeName != "" {
			ctx.Tell(messages.Events, messages.NodeEvent(a.opts.NodeName, v1.EventTypeWarning, messages.EventSystemOOM,
				"System OOM encountered, "+victims(k, "victim process: %s, pid: %d"), ctx.Now()))
		}
		a.measure(ctx) // a measurement in progress is kept: repeated kills must not delay its action
	}
	if pod, container := victim(a.opts.Board.Now().Pods, k.Group); pod != nil {
		ctx.Tell(messages.Events, messages.PodEvent(pod.Pod, container, v1.EventTypeWarning, messages.EventOOMKilling,
			fmt.Sprintf("The kernel ended %s: %s", victims(k, "process %s (pid %d)"), whyKilled(pod, k)), ctx.Now()))
		if id := containerID(pod, container); id != "" {
			uid := string(pod.Pod.UID)
			ctx.Tell(messages.PodAddress(uid), messages.ContainerOutOfMemory{
				UID: uid, Container: container, ContainerID: id, At: ctx.Now(),
			})
		}
	}
	a.awaitKill(ctx)
}

// victims formats the killed processes.
func victims(k oomkill.Kill, one string) string {
	switch k.Times {
	case 0:
		return fmt.Sprintf(one, k.Process, k.PID)
	case 1:
		return "a process"
	}
	return fmt.Sprint(k.Times, " processes")
}

// containerID returns the ID of the container with this name; empty: unknown.
func containerID(pod *board.Pod, container string) string {
	if pod.Status == nil || container == "" {
		return ""
	}
	for _, list := range [][]v1.ContainerStatus{
		pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses,
	} {
		for i := range list {
			if _, id, _ := strings.Cut(list[i].ContainerID, "://"); list[i].Name == container {
				return id
			}
		}
	}
	return ""
}

// victim returns the pod that owns the cgroup at this path, and the container's name if known. Cgroups that a container made
// below its own do not count: the first one is the pod's.
func victim(pods []board.Pod, group string) (of *board.Pod, container string) {
	first, inside := len(group), ""
	for i := range pods {
		if at, rest := within(&pods[i], group); at >= 0 && at < first {
			of, first, inside = &pods[i], at, rest
		}
	}
	if of == nil || of.Status == nil {
		return of, ""
	}
	for _, list := range [][]v1.ContainerStatus{
		of.Status.InitContainerStatuses, of.Status.ContainerStatuses, of.Status.EphemeralContainerStatuses,
	} {
		for i := range list {
			if _, id, _ := strings.Cut(list[i].ContainerID, "://"); id != "" && strings.Contains(inside, id) {
				return of, list[i].Name
			}
		}
	}
	return of, ""
}

// within returns the end of a pod's cgroup name in a path, with either driver, and the remainder; negative: not found.
func within(pod *board.Pod, group string) (at int, rest string) {
	uid := string(pod.Pod.UID)
	for _, name := range []string{"/pod" + uid, "-pod" + strings.ReplaceAll(uid, "-", "_") + ".slice"} {
		if i := strings.Index(group+"/", name+"/"); i >= 0 {
			at = i + len(name)
			return at, group[at:]
		}
	}
	return -1, ""
}

// whyKilled returns the limit that was met.
func whyKilled(pod *board.Pod, k oomkill.Kill) string {
	at, below := within(pod, k.Limited)
	switch {
	case k.Limited == "":
		return "the node has no memory left"
	case at < 0:
		return "pods together have used up the memory of cgroup " + k.Limited
	case below == "":
		return "the pod has used up its memory limit"
	}
	return "the container has used up its memory limit"
}
