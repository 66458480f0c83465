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

// logs is the command that shows what the container said.
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
		v.unfit(f, r)
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
	f.Cause = v.called(r.Container) + " ends again and again"
	f.Remedy = v.logs(r.Container, true)
}

// unfit explains that a container is ended, or was, by a probe.
func (v view) unfit(f *Finding, r messages.Reason) {
	f.Cause = fmt.Sprintf("%s is ended since its %s probe fails: %s", v.called(r.Container), r.Probe, short(r.Cause.Text))
	f.Remedy = fmt.Sprintf("make the application answer the probe, or correct %sProbe; %s", r.Probe,
		v.logs(r.Container, r.Code == messages.ReasonCrashLoopBackOff))
}

// end explains how a container ended: again and again, or once.
func (v view) end(f *Finding, t *v1.ContainerStateTerminated, again bool) {
	who, ends, is := v.called(f.Container), "ended", "was"
	if again {
		ends, is = "ends", "is"
	}
	f.LastError, f.Remedy = cmp.Or(t.Message, f.LastError), v.logs(f.Container, again)
	spec := v.spec(f.Container)
	switch {
	case t.Reason == messages.ReasonOOMKilled:
		f.Cause = who + " " + is + " killed since the node ran out of memory"
		f.Remedy = "give the node more memory, or the container a memory request and limit"
		if spec != nil && !spec.Resources.Limits.Memory().IsZero() {
			f.Cause = fmt.Sprintf("%s %s killed for using more than %s", who, is, spec.Resources.Limits.Memory())
			f.Remedy = "raise the container's memory limit, or have it use less; " + v.logs(f.Container, again)
		}
	case t.Reason == messages.ReasonStartError, t.Reason == "ContainerCannotRun":
		v.start(f, cri.StartCause(t.Message))
	case t.Reason == messages.ReasonUnknown:
		f.Cause = who + " " + ends + ", nobody knows how: " + short(t.Message)
	case cri.EndCause(t.ExitCode, t.Message).Code != "":
		v.start(f, cri.EndCause(t.ExitCode, t.Message))
	case t.ExitCode == 0:
		f.Cause = who + " " + ends + " by itself, with exit code 0"
		if again {
			f.Cause += ", and is started again by its restartPolicy"
			f.Remedy = "have the command go on running, or choose another restartPolicy; " + f.Remedy
		}
	default:
		f.Cause = fmt.Sprintf("%s %s with exit code %d", who, ends, t.ExitCode)
		switch signal := unix.SignalName(syscall.Signal(t.ExitCode - 128)); {
		case signal != "":
			f.Cause = fmt.Sprintf("%s %s ended by %s (exit code %d)", who, is, signal, t.ExitCode)
		case t.ExitCode == 127:
			f.Cause += ": a command was not found"
		case t.ExitCode == 126:
			f.Cause += ": a command could not be executed"
		}
		if words := lastLine(t.Message); words != "" {
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
	var out, mended []Finding // what was mended is told last
	if v.is.Phase == v1.PodFailed && v.is.Reason != "" {
		f := Finding{Code: v.is.Reason, LastError: v.is.Message}
		why := p.Cause
		why.Text = cmp.Or(why.Text, v.is.Message)
		f.Cause, _, f.Remedy = refused(v.is.Reason, why)
		f.WaitsFor = "its deletion: it is not run again"
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
				f.WaitsFor = "nothing: it is not started again"
			} else {
				f.WaitsFor = "its next start"
			}
			out = append(out, f)
		case s.Running != nil && live && !c.Ready && !v.ephemeral(c.Name):
			out = append(out, v.unready(c, init))
		case s.Running != nil && live && last != nil && last.ExitCode != 0:
			v.end(&f, last, false)
			f.Code, f.Tries, f.Since = restarted, int(c.RestartCount), last.FinishedAt.Time
			f.Cause = "it runs now; before, " + f.Cause
			mended = append(mended, f)
		}
	}
	for _, c := range v.is.Conditions {
		if c.Type == v1.PodReady && c.Reason == "ReadinessGatesNotReady" && live {
			out = append(out, Finding{Code: c.Reason, WaitsFor: "the gate's condition",
				Cause: "its containers are ready, but a readiness gate is not: " + c.Message,
				Since: c.LastTransitionTime.Time, Remedy: "see to who sets the condition"})
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

// unready explains a container that runs and is not ready, of which nothing worse is known.
func (v view) unready(c v1.ContainerStatus, init bool) Finding {
	f := Finding{Code: "ContainersNotReady", Container: c.Name, Since: c.State.Running.StartedAt.Time}
	spec, who := v.spec(c.Name), v.called(c.Name)
	started := ptr.Deref(c.Started, false)
	switch {
	case spec == nil:
		f.Cause = who + " runs and is not ready yet"
	case init && !translate.RestartsAlways(spec):
		f.Code, f.Cause = messages.ReasonPodInitializing, who+" still runs, and all others wait for its end"
		f.WaitsFor, f.Remedy = "its end", v.logs(c.Name, false)
	case !started && spec.StartupProbe != nil:
		f.Cause, f.WaitsFor = who+" runs, and its startup probe has not succeeded yet", "a success of the startup probe"
	case !started && spec.Lifecycle != nil && spec.Lifecycle.PostStart != nil:
		f.Cause = who + " runs, and its post-start hook (" + hook(spec.Lifecycle.PostStart) + ") has not ended yet"
		f.WaitsFor, f.Remedy = "the end of the hook", "make the hook shorter, or mend what it waits for"
	case spec.ReadinessProbe != nil:
		f.Cause, f.WaitsFor = who+" runs, and its readiness probe has not succeeded yet", "a success of the readiness probe"
	default:
		f.Cause, f.WaitsFor = who+" has only just been started", "the next look at it"
	}
	return f
}

// fine is the finding on a pod of which nothing is wrong.
func (v view) fine(p *board.Pod) Finding {
	switch {
	case v.is.Phase == v1.PodSucceeded:
		return Finding{Cause: "the pod has completed: all of its containers ended with exit code 0"}
	case v.is.Phase == v1.PodFailed:
		return Finding{Code: "Failed", Cause: "the pod has failed"}
	case v.is.Phase == v1.PodRunning && !slices.ContainsFunc(v.is.ContainerStatuses,
		func(c v1.ContainerStatus) bool { return c.State.Waiting != nil }):
		return Finding{Cause: "the pod runs, and all of its containers are ready"}
	case p.Phase == "preparing" || p.Phase == "":
		return Finding{Code: messages.ReasonContainerCreating, WaitsFor: "the sandbox, the volumes and the first images",
			Cause: "the pod is being prepared: its sandbox, volumes and images"}
	}
	return Finding{Code: messages.ReasonContainerCreating, Cause: "its containers are being started one after another",
		WaitsFor: "their starts"}
}
