package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cmd/playlet/cli"
	"github.com/playlet-dev/playlet/cmd/playlet/client/actors"
	"github.com/playlet-dev/playlet/cmd/playlet/client/screen"
	"github.com/playlet-dev/playlet/cmd/playlet/client/summary"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// topData is the data of "playlet top". Data that has not been received yet is empty.
type topData struct {
	pods            api.Pods
	actors          api.Actors
	figures, before api.Figures // the newest ones, and those before
	problem         string      // why there is nothing newer
	colour          bool
}

// The lists of the screen.
const (
	topPods   = "pods"
	topActors = "actors"
)

var topPodHeading = []string{"NAMESPACE", "NAME", "READY", "STATUS", "RESTARTS", "CPU", "MEMORY", "AGE", "CAUSE"}

// content returns the contents of the screen.
func (d *topData) content(now time.Time) screen.Content {
	return screen.Content{Header: d.header(now), Lists: []screen.List{
		{
			Name: topPods, Headings: topPodHeading, Rows: d.podRows(now), Open: "explain", Logs: true,
			Spare:  []int{7, 4, 2, 0, 6, 5}, // AGE, RESTARTS, READY, NAMESPACE, MEMORY, CPU
			Orders: []string{"name", "CPU", "memory", "restarts", "age"},
		},
		{
			Name: topActors, Headings: actors.Heading, Rows: d.actorRows(), Open: "inspect",
			Orders: []string{"path", "messages waiting", "oldest message", "restarts"},
		},
	}}
}

func (d *topData) header(now time.Time) []string {
	runtime := cli.OrNone(strings.TrimSpace(d.pods.Runtime.Name + " " + d.pods.Runtime.Version))
	node := cmp.Or(d.figures.Node.NodeName, "the node")
	lines := []string{fmt.Sprintf("playlet top   %s   %s   %s", node, runtime, now.Local().Format(time.TimeOnly))}
	phases, crashing, troubled := map[v1.PodPhase]int{}, 0, 0
	for i := range d.pods.Pods {
		p := &d.pods.Pods[i]
		phases[cmp.Or(p.Pod.Status.Phase, v1.PodPending)]++
		if strings.HasSuffix(api.Summarize(p).Status, messages.ReasonCrashLoopBackOff) {
			crashing++
		}
		if p.Cause != "" {
			troubled++
		}
	}
	counts := []string{fmt.Sprintf("pods %d", len(d.pods.Pods))}
	for _, phase := range []v1.PodPhase{v1.PodRunning, v1.PodPending, v1.PodSucceeded, v1.PodFailed, v1.PodUnknown} {
		if n := phases[phase]; n > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", n, phase))
		}
	}
	if troubled > 0 {
		counts = append(counts, fmt.Sprintf(" %d in trouble", troubled))
	}
	if crashing > 0 {
		counts = append(counts, fmt.Sprintf("%d crashing", crashing))
	}
	lines = append(lines, strings.Join(counts, "  "))
	allocatable := d.figures.Allocatable
	cpu, memory := d.figures.Node.CPU, d.figures.Node.Memory
	used := fmt.Sprintf("node %s CPU%s, %s memory%s", cores(cpu), share(cpuOf(cpu), allocatable.Cpu()), megabytes(memory),
		share(memoryOf(memory), allocatable.Memory()))
	if agent := d.figures.Agent; !agent.Since.IsZero() {
		used += fmt.Sprintf("   agent %s, %dMi memory", d.agentCPU(now), agent.Resident>>20)
	}
	lines = append(lines, used)
	notes := summary.NodeNotes(&d.pods.Node, nil, now)
	if d.problem != "" {
		notes = append([]string{cli.Plain(d.problem)}, notes...)
	}
	if len(notes) > 1 {
		notes[0] += fmt.Sprintf(" (%d more: playlet explain node)", len(notes)-1)
	}
	if len(notes) > 0 {
		lines = append(lines, "! "+notes[0])
	}
	return lines
}

// agentCPU returns the processor usage of the agent's process: between the last two answers or, with one answer, on average
// since its start.
func (d *topData) agentCPU(now time.Time) string {
	a, b := d.before, d.figures
	if took := b.At.Sub(a.At); took > 0 && a.Agent.Since.Equal(b.Agent.Since) {
		return fmt.Sprintf("%dm CPU", (b.Agent.CPU-a.Agent.CPU)*1000/took)
	}
	return fmt.Sprintf("%dm CPU since its start", b.Agent.CPU*1000/max(now.Sub(b.Agent.Since), 1))
}

func (d *topData) podRows(now time.Time) []screen.Row {
	usage := map[string]*stats.PodStats{}
	for i := range d.figures.Pods {
		usage[d.figures.Pods[i].PodRef.UID] = &d.figures.Pods[i]
	}
	rows := make([]screen.Row, 0, len(d.pods.Pods))
	for i := range d.pods.Pods {
		p := &d.pods.Pods[i]
		cells, u := summary.Row(p, now, false), usage[string(p.Pod.UID)]
		if u == nil {
			u = &stats.PodStats{}
		}
		born := p.Pod.CreationTimestamp.Time
		if born.IsZero() && p.Pod.Status.StartTime != nil {
			born = p.Pod.Status.StartTime.Time
		}
		rows = append(rows, screen.Row{
			ID: string(p.Pod.UID), Style: d.style(p.Cause != "", p.Pod.Status.Phase),
			Cells: append(cells[:5:5], cores(u.CPU), megabytes(u.Memory), cells[5], summary.WaitingFor(p, now)),
			Ranks: []float64{cpuOf(u.CPU), memoryOf(u.Memory), float64(api.Summarize(p).Restarts), now.Sub(born).Seconds()},
		})
	}
	return rows
}

func (d *topData) actorRows() []screen.Row {
	rows, at := make([]screen.Row, 0, len(d.actors.Actors)), d.actors.At
	branches, names := actors.Branches(d.actors.Actors), actors.PodNames(d.actors.Actors)
	for i := range d.actors.Actors {
		a := &d.actors.Actors[i]
		oldest := 0.0
		if a.Handling != nil {
			oldest = at.Sub(a.Handling.Sent).Seconds()
		}
		rows = append(rows, screen.Row{
			ID: a.Path.String(), Cells: actors.Row(a, actors.ShownPath(a), names, at, false), Branch: branches[i],
			Style: d.style(a.State != supervisors.Running, ""),
			Ranks: []float64{float64(a.Waiting), oldest, float64(a.Restarts)},
		})
	}
	return rows
}

// style returns the style of a row: red on failure, yellow while it starts, green after success. Without colours, a failure is
// bold.
func (d *topData) style(trouble bool, phase v1.PodPhase) screen.Style {
	switch {
	case trouble && !d.colour:
		return screen.Bold
	case trouble:
		return screen.Red
	case d.colour && phase == v1.PodPending:
		return screen.Yellow
	case d.colour && phase == v1.PodSucceeded:
		return screen.Green
	}
	return screen.Plain
}

// pod is the pod with that UID.
func (d *topData) pod(uid string) *api.Pod {
	i := slices.IndexFunc(d.pods.Pods, func(p api.Pod) bool { return string(p.Pod.UID) == uid })
	if i < 0 {
		return nil
	}
	return &d.pods.Pods[i]
}

// cpuOf is in cores, memoryOf in bytes; 0: not known.
func cpuOf(c *stats.CPUStats) float64 {
	if c == nil || c.UsageNanoCores == nil {
		return 0
	}
	return float64(*c.UsageNanoCores) / 1e9
}

func memoryOf(m *stats.MemoryStats) float64 {
	if m == nil || m.WorkingSetBytes == nil {
		return 0
	}
	return float64(*m.WorkingSetBytes)
}

// cores and megabytes print figures as kubectl does.
func cores(c *stats.CPUStats) string {
	if c == nil || c.UsageNanoCores == nil {
		return cli.NoCell
	}
	return fmt.Sprintf("%dm", *c.UsageNanoCores/1e6)
}

func megabytes(m *stats.MemoryStats) string {
	if m == nil || m.WorkingSetBytes == nil {
		return cli.NoCell
	}
	return fmt.Sprintf("%dMi", *m.WorkingSetBytes>>20)
}

// share returns a percentage in brackets, or "" if the total is unknown.
func share(used float64, of *resource.Quantity) string {
	if text := percent(used, of); text != cli.NoCell {
		return " (" + text + ")"
	}
	return ""
}

func percent(used float64, of *resource.Quantity) string {
	if all := of.AsApproximateFloat64(); all > 0 && used > 0 {
		return fmt.Sprintf("%.0f%%", 100*used/all)
	}
	return cli.NoCell
}
