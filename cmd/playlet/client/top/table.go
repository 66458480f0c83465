package top

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cmd/playlet/cli"
	"github.com/playlet-dev/playlet/cmd/playlet/client/base"
	"github.com/playlet-dev/playlet/cmd/playlet/client/names"
	"github.com/playlet-dev/playlet/cmd/playlet/client/summary"
)

// printTop prints the pods once, as the screen shows them. It notes missing figures.
func printTop(ctx context.Context, c *base.Command) error {
	pods, err := c.Client.Pods(ctx, api.Filter{})
	if err != nil {
		return err
	}
	figures, err := c.Client.Figures(ctx)
	if err != nil {
		return err
	}
	now := c.Now()
	rows := make([][]string, 0, len(pods.Pods))
	for _, row := range (&topData{pods: *pods, figures: *figures}).podRows(now) {
		cells := row.Cells
		cells[len(cells)-1] = cli.OrNone(cells[len(cells)-1])
		rows = append(rows, cells)
	}
	c.Note(append(summary.NodeNotes(&pods.Node, nil, now), figures.Missing...)...)
	return (&cli.Table{Out: c.Out, Heading: topPodHeading}).Print(rows)
}

// topTable is one run of "playlet top pods" or "playlet top node".
type topTable struct {
	base.Command
	set              names.Set
	by               string
	containers, bare bool
	figures          *api.Figures
}

// prints has cmd, which it returns, ask for the figures and print them.
func (c *topTable) prints(cmd *cobra.Command, print func(context.Context) error) *cobra.Command {
	cmd.Flags().BoolVar(&c.bare, "no-headers", false, "Print the table without headings")
	cli.OutputFlag(cmd, &c.Output, "table", "table", "yaml", "json")
	return c.Runs(cmd, func(ctx context.Context, _ []string) (err error) {
		if c.figures, err = c.Client.Figures(ctx); err != nil {
			return err
		}
		c.Note(c.figures.Missing...)
		return print(ctx)
	})
}

func newTopPodsCommand() *cobra.Command {
	c := &topTable{}
	cmd := &cobra.Command{
		Use: "pods [NAME...]", Aliases: []string{"pod", "po"}, Short: "Print the CPU and memory usage of pods",
		Args: c.set.Settle,
		Long: "Print the CPU and the memory (the working set) that pods use, as kubectl does, from the kubelet's figures of " +
			"/stats/summary, in whose form -o json has them.",
	}
	c.set.AddFlags(cmd, &c.Socket)
	cmd.Flags().BoolVar(&c.containers, "containers", false, "One line a container")
	cli.ChoiceFlag(cmd, &c.by, "sort-by", "", "", "The most first: `cpu` or memory", "cpu", "memory")
	return c.prints(cmd, c.pods)
}

// pods prints the chosen pods that have figures.
func (c *topTable) pods(ctx context.Context) error {
	all, err := c.Client.Pods(ctx, c.set.Filter())
	if err != nil {
		return err
	}
	chosen, missing := c.set.Choose(all.Pods)
	found := []stats.PodStats{}
	for _, p := range chosen {
		i := slices.IndexFunc(c.figures.Pods, func(s stats.PodStats) bool { return s.PodRef.UID == string(p.Pod.UID) })
		if i >= 0 {
			found = append(found, c.figures.Pods[i])
		} else if len(c.set.Names) > 0 {
			missing = errors.Join(missing, fmt.Errorf("there are no figures of pod %s: it does not run", names.Full(&p)))
		}
	}
	slices.SortStableFunc(found, func(x, y stats.PodStats) int { return c.compare(x.CPU, y.CPU, x.Memory, y.Memory) })
	if c.Output != "table" {
		return errors.Join(c.Print(struct {
			Pods []stats.PodStats `json:"pods"`
		}{found}), missing)
	}
	t := &cli.Table{Out: c.Out, Heading: []string{"NAMESPACE", "NAME", "CPU(cores)", "MEMORY(bytes)"}, Begun: c.bare}
	if c.containers {
		t.Heading = []string{"NAMESPACE", "POD", "NAME", "CPU(cores)", "MEMORY(bytes)"}
	}
	var rows [][]string
	for i := range found {
		p := &found[i]
		if !c.containers {
			rows = append(rows, []string{p.PodRef.Namespace, p.PodRef.Name, cores(p.CPU), megabytes(p.Memory)})
			continue
		}
		slices.SortStableFunc(p.Containers, func(x, y stats.ContainerStats) int {
			return c.compare(x.CPU, y.CPU, x.Memory, y.Memory)
		})
		for _, one := range p.Containers {
			rows = append(rows, []string{p.PodRef.Namespace, p.PodRef.Name, one.Name, cores(one.CPU), megabytes(one.Memory)})
		}
	}
	return errors.Join(t.Print(rows), missing)
}

// compare has the one that uses more come first, where an order is asked for.
func (c *topTable) compare(cpu, otherCPU *stats.CPUStats, memory, otherMemory *stats.MemoryStats) int {
	switch c.by {
	case "cpu":
		return cmp.Compare(cpuOf(otherCPU), cpuOf(cpu))
	case "memory":
		return cmp.Compare(memoryOf(otherMemory), memoryOf(memory))
	}
	return 0
}

func newTopNodeCommand() *cobra.Command {
	c := &topTable{}
	cmd := &cobra.Command{
		Use: "node", Aliases: []string{"nodes", "no"}, Short: "Print the CPU and memory usage of the node",
		Args: cli.NoArguments,
		Long: "Print the CPU and the memory (the working set) that the node uses, as kubectl does. Percentages are of what " +
			"pods can have of it.",
	}
	return c.prints(cmd, c.node)
}

func (c *topTable) node(context.Context) error {
	f := c.figures
	if c.Output != "table" {
		return c.Print(struct {
			Node        stats.NodeStats `json:"node"`
			Allocatable v1.ResourceList `json:"allocatable,omitempty"`
			Agent       api.Process     `json:"agent"`
		}{f.Node, f.Allocatable, f.Agent})
	}
	t := &cli.Table{Out: c.Out, Heading: []string{"NAME", "CPU(cores)", "CPU(%)", "MEMORY(bytes)", "MEMORY(%)"}, Begun: c.bare}
	return t.Print([][]string{{
		f.Node.NodeName, cores(f.Node.CPU), percent(cpuOf(f.Node.CPU), f.Allocatable.Cpu()), megabytes(f.Node.Memory),
		percent(memoryOf(f.Node.Memory), f.Allocatable.Memory()),
	}})
}
