package pods

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cmd/playlet/cli"
	"github.com/playlet-dev/playlet/cmd/playlet/client/names"
	"github.com/playlet-dev/playlet/cmd/playlet/client/summary"
	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
)

const describeLong = `Describe pods: a summary of the spec, the state and the last exit of each container, probes, volumes,
conditions and events. "playlet explain" gives the cause of a pod's state in one sentence.`

func newDescribeCommand() *cobra.Command {
	c := &podsCommand{}
	cmd := &cobra.Command{
		Use: "describe NAME...", Short: "Describe pods in full", Long: describeLong, Args: c.set.Some,
		Example: "  playlet describe web\n  playlet describe -l app=web",
	}
	c.set.AddFlags(cmd, &c.Socket)
	return c.Runs(cmd, c.describe)
}

func (c *podsCommand) describe(ctx context.Context, _ []string) error {
	all, err := c.Client.Pods(ctx, c.set.Filter())
	if err != nil {
		return err
	}
	found, missing := c.set.Choose(all.Pods)
	found, notes := names.Meant(found)
	for i := range found {
		p := &found[i]
		if i > 0 {
			fmt.Fprintln(c.Out)
		}
		if err := Describe(ctx, c.Client, p, c.Out, c.Now()); err != nil {
			return err
		}
	}
	c.Note(notes...)
	return missing
}

// Describe prints a pod and its Events.
func Describe(ctx context.Context, client *api.Client, p *api.Pod, out io.Writer, now time.Time) error {
	got, err := client.Events(ctx, api.Filter{Namespace: p.Pod.Namespace, Name: p.Pod.Name})
	if err != nil {
		return err
	}
	events := slices.DeleteFunc(got.Items, func(e v1.Event) bool { return e.InvolvedObject.UID != p.Pod.UID })
	d := &description{w: tabwriter.NewWriter(out, 0, 0, 2, ' ', 0), pod: p, events: events, now: now}
	d.print()
	if err := d.w.Flush(); err != nil {
		return err
	}
	return printEvents(out, events, now)
}

// description prints the description of one pod.
type description struct {
	w      *tabwriter.Writer
	pod    *api.Pod
	events []v1.Event
	now    time.Time
}

func (d *description) line(depth int, what, text string) {
	if text = cli.Plain(text); text != "" {
		fmt.Fprintf(d.w, "%s%s:\t%s\n", strings.Repeat("  ", depth), what, text)
	}
}

// since is a time, and how long ago it was.
func (d *description) since(t metav1.Time) string {
	if t.IsZero() {
		return ""
	}
	return fmt.Sprintf("%s (%s ago)", t.Local().Format(time.DateTime), duration.HumanDuration(max(d.now.Sub(t.Time), 0)))
}

func (d *description) print() {
	p, spec, status := d.pod.Pod, &d.pod.Pod.Spec, &d.pod.Pod.Status
	d.line(0, "Name", p.Name)
	d.line(0, "Namespace", p.Namespace)
	d.line(0, "UID", string(p.UID))
	d.line(0, "Source", string(d.pod.Source))
	d.line(0, "Node", spec.NodeName)
	if status.StartTime != nil {
		d.line(0, "Started", d.since(*status.StartTime))
	}
	d.line(0, "Labels", pairs(p.Labels))
	d.line(0, "Status", api.Summarize(d.pod).Status)
	d.line(0, "Because", summary.WaitingFor(d.pod, d.now))
	d.line(0, "Ending", d.pod.Ending)
	d.line(0, "IP", summary.IP(p))
	d.line(0, "Restart policy", string(spec.RestartPolicy))
	d.line(0, "QoS class", string(status.QOSClass))
	d.containers("Init containers", spec.InitContainers, status.InitContainerStatuses)
	d.containers("Containers", spec.Containers, status.ContainerStatuses)
	ephemeral := names.Containers(p)[len(spec.InitContainers)+len(spec.Containers):]
	d.containers("Ephemeral containers", ephemeral, status.EphemeralContainerStatuses)
	d.volumes()
	if len(status.Conditions) > 0 {
		fmt.Fprintln(d.w, "Conditions:")
	}
	for _, c := range status.Conditions {
		d.line(1, string(c.Type), strings.TrimSuffix(string(c.Status)+" "+strings.Trim(c.Reason+": "+c.Message, ": "), " "))
	}
}

func (d *description) containers(title string, specs []v1.Container, statuses []v1.ContainerStatus) {
	if len(specs) > 0 {
		fmt.Fprintln(d.w, title+":")
	}
	for i := range specs {
		spec, st := &specs[i], &v1.ContainerStatus{}
		if j := slices.IndexFunc(statuses, func(s v1.ContainerStatus) bool { return s.Name == spec.Name }); j >= 0 {
			st = &statuses[j]
		}
		fmt.Fprintf(d.w, "  %s:\n", spec.Name)
		if translate.RestartsAlways(spec) {
			d.line(2, "Kind", "sidecar")
		}
		d.line(2, "Image", spec.Image)
		d.line(2, "Command", strings.Join(append(slices.Clone(spec.Command), spec.Args...), " "))
		var ports []string
		for _, p := range spec.Ports {
			ports = append(ports, strings.TrimSpace(fmt.Sprintf("%d/%s %s", p.ContainerPort, p.Protocol, p.Name)))
		}
		d.line(2, "Ports", strings.Join(ports, ", "))
		d.line(2, "Requests", amounts(spec.Resources.Requests))
		d.line(2, "Limits", amounts(spec.Resources.Limits))
		d.line(2, "Own CPUs", d.pod.CPUs[spec.Name])
		d.line(2, "State", d.state(&st.State))
		d.line(2, "Last state", d.state(&st.LastTerminationState))
		d.line(2, "Restarts", fmt.Sprint(st.RestartCount))
		for _, kind := range messages.ProbeKinds {
			if probe := messages.Probe(spec, kind); probe != nil {
				d.line(2, titled(kind), d.probe(kind, probe, spec.Name, st))
			}
		}
		for _, m := range spec.VolumeMounts {
			d.line(2, "Mount", fmt.Sprintf("%s from %s%s", m.MountPath, m.Name, map[bool]string{true: ", read-only"}[m.ReadOnly]))
		}
	}
}

// state returns the state of a container.
func (d *description) state(s *v1.ContainerState) string {
	switch {
	case s.Running != nil:
		return strings.TrimSpace("runs since " + d.since(s.Running.StartedAt))
	case s.Waiting != nil:
		return strings.TrimSuffix("waits: "+s.Waiting.Reason+": "+s.Waiting.Message, ": ")
	case s.Terminated != nil:
		text := "ended " + d.since(s.Terminated.FinishedAt) + ", " + exitMeaning(s.Terminated)
		if s.Terminated.Message != "" {
			text += ": " + s.Terminated.Message
		}
		return text
	}
	return ""
}

// exitMeaning returns an exit code with its meaning.
func exitMeaning(t *v1.ContainerStateTerminated) string {
	text := fmt.Sprintf("exit code %d", t.ExitCode)
	if t.Reason != "" {
		text += " (" + t.Reason + ")"
	}
	signal := unix.SignalName(syscall.Signal(t.ExitCode - 128))
	switch {
	case t.Reason == messages.ReasonOOMKilled:
		return text + ": killed for using more memory than its limit allows"
	case t.Reason == messages.ReasonUnknown:
		return text + ": nobody saw how it ended"
	case t.ExitCode == 0:
		return text
	case t.ExitCode == 126:
		return text + ": a command could not be executed"
	case t.ExitCode == 127:
		return text + ": a command was not found"
	case t.ExitCode == 128+int32(unix.SIGKILL):
		return text + ": killed by SIGKILL"
	case t.ExitCode == 128+int32(unix.SIGTERM):
		return text + ": ended by SIGTERM, as when it is stopped"
	case t.ExitCode > 128 && signal != "":
		return text + ": ended by " + signal
	}
	return text
}

// probe returns a probe's handler, its result, and the message of its last failure.
func (d *description) probe(kind messages.ProbeKind, p *v1.Probe, container string, st *v1.ContainerStatus) string {
	text := handler(&p.ProbeHandler) + fmt.Sprintf(" every %ds", max(p.PeriodSeconds, 1))
	started := st.Started != nil && *st.Started
	switch {
	case st.State.Running == nil:
		text += "; not run now"
	case kind == messages.Startup && started, kind == messages.Readiness && st.Ready:
		text += "; succeeded"
	case kind == messages.Startup, kind == messages.Readiness:
		text += "; has not succeeded"
	}
	for i := len(d.events) - 1; i >= 0; i-- {
		e := d.events[i]
		words, failed := strings.CutPrefix(e.Message, titled(kind)+" probe ")
		if failed && strings.HasSuffix(e.InvolvedObject.FieldPath, "{"+container+"}") {
			if i := strings.Index(words, "; container "+container+": its "); i >= 0 { // it is printed above
				words = words[:i]
			}
			ago := duration.HumanDuration(max(d.now.Sub(e.LastTimestamp.Time), 0))
			return text + fmt.Sprintf("; last failure %s ago: %s", ago, strings.TrimPrefix(words, "failed: "))
		}
	}
	return text
}

func titled(kind messages.ProbeKind) string {
	return strings.ToUpper(string(kind[:1])) + string(kind[1:])
}

func handler(h *v1.ProbeHandler) string {
	switch {
	case h.Exec != nil:
		return "exec " + strings.Join(h.Exec.Command, " ")
	case h.HTTPGet != nil:
		return fmt.Sprintf("%s %s:%s%s", strings.ToLower(string(h.HTTPGet.Scheme)), h.HTTPGet.Host, h.HTTPGet.Port.String(),
			h.HTTPGet.Path)
	case h.TCPSocket != nil:
		return fmt.Sprintf("tcp %s:%s", h.TCPSocket.Host, h.TCPSocket.Port.String())
	case h.GRPC != nil:
		return fmt.Sprintf("grpc :%d", h.GRPC.Port)
	}
	return ""
}

func (d *description) volumes() {
	volumes := d.pod.Pod.Spec.Volumes
	if len(volumes) > 0 {
		fmt.Fprintln(d.w, "Volumes:")
	}
	for i := range volumes {
		v := &volumes[i]
		text := ""
		switch {
		case v.EmptyDir != nil:
			text = strings.TrimSpace("emptyDir " + string(v.EmptyDir.Medium))
		case v.HostPath != nil:
			text = "hostPath " + v.HostPath.Path
		case v.ConfigMap != nil:
			text = "configMap " + v.ConfigMap.Name
		case v.Secret != nil:
			text = "secret " + v.Secret.SecretName
		case v.DownwardAPI != nil:
			text = "downwardAPI"
		case v.Projected != nil:
			text = fmt.Sprintf("projected, of %d sources", len(v.Projected.Sources))
		default:
			text = "of another kind"
		}
		d.line(1, v.Name, text)
	}
}

func pairs(m map[string]string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, k+"="+m[k])
	}
	return strings.Join(out, ", ")
}

func amounts(list v1.ResourceList) string {
	m := map[string]string{}
	for name, q := range list {
		m[string(name)] = q.String()
	}
	return pairs(m)
}
