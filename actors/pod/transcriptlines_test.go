package pod

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/pod/work"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/exits"
)

// received returns the line of a message that the machine received.
func received(msg any) string {
	name := reflect.TypeOf(msg)
	switch m := msg.(type) {
	case nil:
		return "-> (wake-up)"
	case messages.PodWanted:
		line := fmt.Sprintf("-> PodWanted generation %d", m.Generation)
		if m.Ending != nil {
			line += ": end it, " + m.Ending.Reason
		}
		if m.Fail != nil {
			line += ": fail it, " + m.Fail.Reason
		}
		if m.ObjectGone {
			line += ", its object is gone"
		}
		if m.NoNetwork != nil {
			line += ", without a network"
		}
		if m.Final != nil {
			line += ", its final status is on disk"
		}
		return line
	case messages.PodObserved:
		return "-> PodObserved: " + observedLine(m.Facts.Sandboxes, m.Facts.Containers)
	case messages.ServiceStarted:
		return "-> ServiceStarted: " + string(m.Service)
	case messages.VolumesFailed:
		return fmt.Sprintf("-> VolumesFailed: %s, %s", m.Volume, m.Reason.Message)
	case messages.VolumesUnmounted:
		return joined("-> VolumesUnmounted", m.Left)
	case work.SandboxStarted:
		if m.Fact == nil {
			return fmt.Sprintf("-> SandboxStarted: attempt %d failed, %s", m.Attempt, m.Reason.Code)
		}
		return fmt.Sprintf("-> SandboxStarted: attempt %d is %s", m.Attempt, m.Fact.ID)
	case work.SandboxStopped:
		return "-> SandboxStopped: " + m.ID + failure(m.Failed)
	case work.PodRemoved:
		return "-> PodRemoved" + failure(m.Failed)
	case work.ContainerResized:
		return "-> ContainerResized: " + m.ID + failure(m.Failed)
	case messages.ChildStarted:
		if m.Again {
			return "-> ChildStarted: " + m.Name + ", restarted"
		}
		return "-> ChildStarted: " + m.Name
	case messages.ChildExited:
		line := "-> ChildExited: " + m.Name
		if ended, ok := m.Result.(messages.ContainerEnded); ok {
			line += fmt.Sprintf(" with exit code %d", ended.Fact.ExitCode)
		}
		return line + ", verdict " + string(m.Verdict)
	case messages.ContainerReported:
		line := fmt.Sprintf("-> ContainerReported: %s is %s", m.Name, m.Stage)
		return line + failure(m.Failed)
	case messages.ImagePulled:
		return fmt.Sprintf("-> ImagePulled: %s for %s", m.Image, m.Key.Container)
	case messages.ImageAwaited:
		return fmt.Sprintf("-> ImageAwaited: %s for %s", m.Image, m.Key.Container)
	case messages.ImageFailed:
		return fmt.Sprintf("-> ImageFailed: %s for %s, %s", m.Image, m.Key.Container, m.Reason.Code)
	case messages.ProbesObserved:
		var results []string
		for _, c := range m.Containers {
			for kind, r := range map[messages.ProbeKind]messages.ProbeResult{messages.Startup: c.Results.Startup,
				messages.Readiness: c.Results.Readiness, messages.Liveness: c.Results.Liveness} {
				if r != "" {
					results = append(results, fmt.Sprintf("%s %s %s", c.Name, kind, r))
				}
			}
		}
		slices.Sort(results)
		return joined("-> ProbesObserved", strings.Join(results, ", "))
	case messages.RestartContainers:
		return "-> RestartContainers"
	}
	return "-> " + name.Name()
}

// effectLine returns the line of an effect. An actor that is not present is spawned with its order.
func effectLine(e Effect, present func(container string) bool) string {
	switch e := e.(type) {
	case Transition:
		return fmt.Sprintf("phase %s to %s", e.From, e.To)
	case Tell:
		return sentLine(e)
	case Reply:
		return fmt.Sprintf("reply %s", reflect.TypeOf(e.Msg).Name())
	case OrderContainer:
		line := sentLine(Tell{messages.ContainerAddress("u1", e.Name), e.Order}) + " (" + strategyLine(e.Strategy) + ")"
		if present(e.Name) {
			return line
		}
		return "spawn " + strings.Replace(line, " <- ", " with ", 1)
	case UpdateContainer:
		order := "no order"
		if e.Order != nil {
			_, order, _ = strings.Cut(sentLine(Tell{messages.ContainerAddress("u1", e.Name), e.Order}), " <- ")
		}
		return "next life of container/" + e.Name + ": " + order + " (" + strategyLine(e.Strategy) + ")"
	case DropContainer:
		return "stop container/" + e.Name
	case ContainerEnd:
		return fmt.Sprintf("log: %s ended with exit code %d", e.Fact.ID, e.Fact.ExitCode)
	case work.StartSandbox:
		return fmt.Sprintf("do StartSandbox: attempt %d", e.Attempt)
	case work.StopSandbox:
		return "do StopSandbox: " + e.ID
	case work.ResizeContainer:
		return fmt.Sprintf("do ResizeContainer: %s, memory %s", e.ID, e.Spec.Resources.Limits.Memory())
	case ResizeTried:
		return fmt.Sprintf("count a resize, success %v", e.Success)
	}
	return "do " + reflect.TypeOf(e).Name()
}

func strategyLine(s exits.Strategy) string {
	line := string(s.Restart)
	if s.Escalate {
		line += ", vital"
	}
	if len(s.Rules) > 0 {
		line += ", with rules"
	}
	return line
}

func sentLine(e Tell) string {
	to := string(e.To)
	if _, name, ok := strings.Cut(to, "pods/u1/"); ok {
		to = "container/" + name
	}
	line := fmt.Sprintf("%s <- %s", to, reflect.TypeOf(e.Msg).Name())
	switch m := e.Msg.(type) {
	case messages.RunContainer:
		if m.Adopt != nil {
			return line + ": adopt " + m.Adopt.ID
		}
		line += fmt.Sprintf(": attempt %d in %s", m.Attempt, m.Sandbox.ID)
	case messages.StopContainer:
		line += fmt.Sprintf(": within %s", m.Grace.Truncate(100*time.Millisecond))
		switch {
		case m.HookOnly:
			line += ", its pre-stop hook alone"
		case m.NoHook:
			line += ", without its pre-stop hook"
		}
		line = joined(line, m.Cause.Text)
	case messages.PullImage:
		line += fmt.Sprintf(": %s for %s", m.Image, m.Key.Container)
	case messages.UnmountVolumes:
		if m.Remove {
			line += ": and remove the pod's folder"
		}
	case messages.WatchProbes:
		var probes []string
		for _, c := range m.Containers {
			for _, kind := range c.Run {
				probes = append(probes, fmt.Sprintf("%s %s", c.Spec.Name, kind))
			}
		}
		line = joined(line, strings.Join(probes, ", "))
	case messages.PodEnded:
		switch {
		case m.Gone:
			line += ": nothing is left"
		case m.Released:
			line += ": only the runtime has remains"
		}
	case messages.RecordEvent:
		line = fmt.Sprintf("event %s %s: %s", m.Type, m.Reason, m.Message)
	case messages.PodStatusChanged:
		line = "status " + statusLine(m)
	}
	return line
}

// statusLine returns the pod's phase, its reason to wait and its containers.
func statusLine(m messages.PodStatusChanged) string {
	line := string(m.Status.Phase)
	for _, c := range m.Status.Conditions {
		if c.Type == v1.PodReady && c.Status == v1.ConditionTrue {
			line += ", ready"
		}
	}
	if m.Status.Reason != "" {
		line += ", " + m.Status.Reason
	}
	if w := m.Waiting; w != nil {
		line += ", waits: " + w.Code
		if w.Container != "" {
			line += " of " + w.Container
		}
	}
	for _, c := range slices.Concat(m.Status.InitContainerStatuses, m.Status.ContainerStatuses, m.Status.EphemeralContainerStatuses) {
		line += "; " + c.Name + " "
		switch {
		case c.State.Running != nil:
			line += "runs"
		case c.State.Terminated != nil:
			line += fmt.Sprintf("exited %d", c.State.Terminated.ExitCode)
		case c.State.Waiting != nil:
			line += c.State.Waiting.Reason
		}
		if c.Ready {
			line += ", ready"
		}
		if c.RestartCount > 0 {
			line += fmt.Sprintf(", restarts %d", c.RestartCount)
		}
	}
	return line
}

func observedLine(sandboxes []messages.SandboxFact, containers []messages.ContainerFact) string {
	if len(sandboxes)+len(containers) == 0 {
		return "nothing"
	}
	var parts []string
	for _, s := range sandboxes {
		state := "ready"
		if !s.Ready {
			state = "not ready"
		}
		parts = append(parts, s.ID+" "+state)
	}
	for _, c := range containers {
		part := fmt.Sprintf("%s %s", c.ID, c.State)
		if c.State == messages.ContainerExited {
			part += fmt.Sprintf(" %d", c.ExitCode)
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ", ")
}

func joined(line, more string) string {
	if more == "" {
		return line
	}
	return line + ": " + more
}

func failure(r *messages.Reason) string {
	if r == nil {
		return ""
	}
	return ", failed: " + r.Message
}
