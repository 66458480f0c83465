package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/internal/podspec"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
)

func (v view) spec(name string) *v1.Container {
	for c := range podspec.Containers(&v.pod.Spec) {
		if c.Name == name {
			return c
		}
	}
	return nil
}

func (v view) isInit(name string) bool {
	return slices.ContainsFunc(v.pod.Spec.InitContainers, func(c v1.Container) bool { return c.Name == name })
}

// called is a container as sentences name it.
func (v view) called(name string) string {
	if v.isInit(name) {
		return "init container " + name
	}
	return "container " + name
}

// about puts the container's name before the rest of a sentence, or leaves it out where the text before has it.
func (v view) about(name, rest string) string {
	if rest, ok := strings.CutPrefix(rest, ": "); ok && name != "" && name == v.named {
		return rest
	}
	return v.called(name) + rest
}

// logs returns the command that shows the container's log.
func (v view) logs(container string, previous bool) string {
	flag := ""
	if previous {
		flag = "-p "
	}
	return fmt.Sprintf("see playlet logs %s-n %s %s -c %s", flag, v.pod.Namespace, v.pod.Name, container)
}

func (v view) crash(f *Finding, r messages.Reason) {
	f.WaitsFor, f.LastError = "the end of its back-off", r.Cause.Text
	if r.Probe != "" {
		v.probeFailed(f, r)
		return
	}
	if r.Cause.Code == messages.CausePostStart {
		v.start(f, r.Cause)
		return
	}
	for _, c := range v.statuses() {
		if t := cmp.Or(c.LastTerminationState.Terminated, c.State.Terminated); c.Name == r.Container && t != nil {
			v.end(f, t, true)
			return
		}
	}
	f.Cause = v.called(r.Container) + " keeps exiting"
	f.Remedy = v.logs(r.Container, true)
}

// probeFailed explains that a container was killed because of a probe, or is being killed.
func (v view) probeFailed(f *Finding, r messages.Reason) {
	over, is := r.Code == messages.ReasonCrashLoopBackOff, "is being"
	if over {
		is = "was"
	}
	f.Cause = fmt.Sprintf("%s %s killed because its %s probe failed: %s", v.called(r.Container), is, r.Probe, short(r.Cause.Text))
	f.Remedy = fmt.Sprintf("make the application answer the probe, or correct %sProbe; %s", r.Probe, v.logs(r.Container, over))
}

// end explains the end of a container. previous selects the log of the previous run, for a container that has been restarted
// or is in back-off.
func (v view) end(f *Finding, t *v1.ContainerStateTerminated, previous bool) {
	name, spec := v.called(f.Container), v.spec(f.Container)
	f.LastError, f.Remedy = cmp.Or(t.Message, f.LastError), v.logs(f.Container, previous)
	switch {
	case t.Reason == messages.ReasonOOMKilled:
		f.Cause = name + " was killed because the node ran out of memory"
		f.Remedy = "give the node more memory, or the container a memory request and limit"
		if spec != nil && !spec.Resources.Limits.Memory().IsZero() {
			f.Cause = fmt.Sprintf("%s was killed for using more than %s of memory", name, spec.Resources.Limits.Memory())
			f.Remedy = "raise the container's memory limit, or reduce its memory use; " + v.logs(f.Container, previous)
		}
	case t.Reason == messages.ReasonStartError, t.Reason == "ContainerCannotRun":
		v.start(f, cri.StartCause(t.Message))
	case t.Reason == messages.ReasonUnknown:
		f.Cause = name + " ended, and its exit code is unknown: " + short(t.Message)
	case cri.EndCause(t.ExitCode, t.Message).Code != "":
		v.start(f, cri.EndCause(t.ExitCode, t.Message))
	default:
		f.Cause = fmt.Sprintf("%s exited with code %d", name, t.ExitCode)
		switch signal := unix.SignalName(syscall.Signal(t.ExitCode - 128)); {
		case t.ExitCode == 0 && previous:
			f.Cause += ", and its restartPolicy starts it again"
			f.Remedy = "make the command keep running, or choose another restartPolicy; " + f.Remedy
		case signal != "":
			f.Cause = fmt.Sprintf("%s was killed by %s (exit code %d)", name, signal, t.ExitCode)
		case t.ExitCode == 127:
			f.Cause += ": a command was not found"
		case t.ExitCode == 126:
			f.Cause += ": a command could not be executed"
		}
		if words := lastLine(t.Message); words != "" && t.ExitCode != 0 {
			f.Cause += ": " + words
		}
	}
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return short(s[strings.LastIndex(s, "\n")+1:])
}

// status are the findings that the pod's status alone gives.
func (v view) status(p *board.Pod) []Finding {
	if v.is.Phase == v1.PodSucceeded {
		return nil
	}
	var out, mended []Finding // resolved findings come last
	if v.is.Phase == v1.PodFailed && v.is.Reason != "" {
		f := Finding{Code: v.is.Reason, LastError: v.is.Message}
		why := p.Cause
		why.Text = cmp.Or(why.Text, v.is.Message)
		f.Cause, _, f.Remedy = refused(v.is.Reason, why)
		f.WaitsFor = "its deletion: it is not restarted"
		out = append(out, f)
	}
	live := p.Ending == "" && v.is.Phase != v1.PodFailed
	for i, c := range v.statuses() {
		init := i < len(v.is.InitContainerStatuses)
		f := Finding{Container: c.Name}
		switch s, last := c.State, c.LastTerminationState.Terminated; {
		case s.Waiting != nil && s.Waiting.Reason != messages.ReasonContainerCreating &&
			s.Waiting.Reason != messages.ReasonPodInitializing && live:
			out = append(out, v.reason(hold(p, c)))
		case s.Terminated != nil && (s.Terminated.ExitCode != 0 || !init && live && v.restarts(c.Name)):
			f.Code, f.Since = cmp.Or(s.Terminated.Reason, messages.ReasonError), s.Terminated.FinishedAt.Time
			v.end(&f, s.Terminated, false)
			if f.Tries = int(c.RestartCount); !live || !v.restarts(c.Name) {
				f.WaitsFor = "nothing: it is not restarted"
			} else {
				f.WaitsFor = "its next start"
			}
			out = append(out, f)
		case s.Running != nil && live && !c.Ready && !v.ephemeral(c.Name):
			out = append(out, v.unready(c, init))
		case s.Running != nil && live && last != nil && last.ExitCode != 0:
			v.end(&f, last, true)
			f.Code, f.Tries, f.Since = restarted, int(c.RestartCount), last.FinishedAt.Time
			f.Cause = "it is running again; before that, " + f.Cause
			mended = append(mended, f)
		}
	}
	for _, c := range v.is.Conditions {
		if c.Type == v1.PodReady && c.Reason == "ReadinessGatesNotReady" && live {
			out = append(out, Finding{Code: c.Reason, WaitsFor: "the gate's condition",
				Cause: "its containers are ready, but a readiness gate is not: " + c.Message,
				Since: c.LastTransitionTime.Time, Remedy: "check the component that sets the condition"})
		}
	}
	return append(out, mended...)
}

// hold is the reason for which a container waits. Of an actor that has not reported since its restart it is the status' own.
func hold(p *board.Pod, c v1.ContainerStatus) messages.Reason {
	for _, r := range p.Holds {
		if r.Container == c.Name && r.Code == c.State.Waiting.Reason {
			return r
		}
	}
	return messages.Reason{Code: c.State.Waiting.Reason, Message: c.State.Waiting.Message, Container: c.Name,
		Tries: int(c.RestartCount)}
}

// restarted is the code of a container that runs again.
const restarted = "Restarted"

func (v view) restarts(container string) bool {
	spec := v.spec(container)
	return spec != nil && !v.ephemeral(container) && translate.RestartPolicy(&v.pod.Spec, spec) == v1.RestartPolicyAlways
}

func (v view) ephemeral(name string) bool {
	return slices.ContainsFunc(v.pod.Spec.EphemeralContainers, func(c v1.EphemeralContainer) bool { return c.Name == name })
}

// unready explains a container that is running but not ready.
func (v view) unready(c v1.ContainerStatus, init bool) Finding {
	f := Finding{Code: "ContainersNotReady", Container: c.Name, Since: c.State.Running.StartedAt.Time}
	spec, who := v.spec(c.Name), v.called(c.Name)
	started := ptr.Deref(c.Started, false)
	switch {
	case spec == nil:
		f.Cause = who + " is running but not ready yet"
	case init && !translate.RestartsAlways(spec):
		f.Code, f.Cause = messages.ReasonPodInitializing, who+" is still running, and the others wait for it to finish"
		f.WaitsFor, f.Remedy = "its end", v.logs(c.Name, false)
	case !started && spec.StartupProbe != nil:
		f.Cause, f.WaitsFor = who+" is running, and its startup probe has not succeeded yet", "a success of the startup probe"
	case !started && spec.Lifecycle != nil && spec.Lifecycle.PostStart != nil:
		f.Cause = who + " is running, and its post-start hook (" + hook(spec.Lifecycle.PostStart) + ") has not finished yet"
		f.WaitsFor, f.Remedy = "the end of the hook", "make the hook shorter, or fix what it waits for"
	case spec.ReadinessProbe != nil:
		f.Cause, f.WaitsFor = who+" is running, and its readiness probe has not succeeded yet", "a success of the readiness probe"
	default:
		f.Cause, f.WaitsFor = who+" has just been started", "its next status"
	}
	return f
}

// fine returns the finding for a pod without problems.
func (v view) fine(p *board.Pod) Finding {
	switch {
	case v.is.Phase == v1.PodSucceeded:
		return Finding{Cause: "the pod has completed: all of its containers exited with code 0"}
	case v.is.Phase == v1.PodFailed:
		return Finding{Code: "Failed", Cause: "the pod has failed"}
	case v.is.Phase == v1.PodRunning && !slices.ContainsFunc(v.is.ContainerStatuses,
		func(c v1.ContainerStatus) bool { return c.State.Waiting != nil }):
		return Finding{Cause: "the pod is running, and all of its containers are ready"}
	case p.Phase == "preparing" || p.Phase == "":
		return Finding{Code: messages.ReasonContainerCreating, WaitsFor: "the sandbox, the volumes and the first images",
			Cause: "the pod's sandbox, volumes and images are being prepared"}
	}
	return Finding{Code: messages.ReasonContainerCreating, Cause: "its containers are being started one after another",
		WaitsFor: "their starts"}
}
