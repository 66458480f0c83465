package top

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cmd/playlet/cli"
	"github.com/playlet-dev/playlet/cmd/playlet/client/names"
	"github.com/playlet-dev/playlet/cmd/playlet/client/summary"
)

// printTop prints the pods as the screen has them, once. What figures lack goes to notes.
func printTop(ctx context.Context, client *api.Client, out, notes io.Writer) error {
	pods, err := client.Pods(ctx, api.Filter{})
	if err != nil {
		return err
	}
	figures, err := client.Figures(ctx)
	if err != nil {
		return err
	}
	now := time.Now()
	rows := make([][]string, 0, len(pods.Pods))
	for _, row := range (&topData{pods: *pods, figures: *figures}).podRows(now) {
		cells := row.Cells
		cells[len(cells)-1] = cli.OrNone(cells[len(cells)-1])
		rows = append(rows, cells)
	}
	for _, note := range slices.Concat(summary.NodeNotes(&pods.Node, nil, now), figures.Missing) {
		fmt.Fprintln(notes, cli.Plain(note))
	}
	return (&cli.Table{Out: out, Heading: topPodHeading}).Print(rows)
}

// topTable is one run of "playlet top pods" or "playlet top node".
type topTable struct {
	client           *api.Client
	set              names.Set
	output, by       string
	containers, bare bool
	out, err         io.Writer
	figures          *api.Figures
}

func (c *topTable) addFlags(cmd *cobra.Command) (socket *string) {
	socket = cli.SocketFlag(cmd)
	cmd.Flags().BoolVar(&c.bare, "no-headers", false, "Leave the headings of the table out")
	cli.OutputFlag(cmd, &c.output, "table", "table", "yaml", "json")
	return socket
}

// begin asks for the figures.
func (c *topTable) begin(cmd *cobra.Command, socket string) (err error) {
	if err := cli.OneOf("output", c.output, "table", "yaml", "json"); err != nil {
		return err
	}
	c.client, c.out, c.err = api.NewClient(socket), cmd.OutOrStdout(), cmd.ErrOrStderr()
	if c.figures, err = c.client.Figures(cmd.Context()); err != nil {
		return err
	}
	for _, text := range c.figures.Missing {
		fmt.Fprintln(c.err, cli.Plain(text))
	}
	return nil
}

func newTopPodsCommand() *cobra.Command {
	c := &topTable{}
	cmd := &cobra.Command{
		Use: "pods [NAME...]", Aliases: []string{"pod", "po"}, Short: "Print the CPU and the memory that pods use",
		SilenceUsage: true,
		Long: "Print the CPU and the memory (the working set) that pods use, as kubectl does, from the kubelet's figures of " +
			"/stats/summary, in whose form -o json has them.",
	}
	socket := c.addFlags(cmd)
	c.set.AddFlags(cmd, socket)
	cmd.Flags().BoolVar(&c.containers, "containers", false, "One line a container")
	cmd.Flags().StringVar(&c.by, "sort-by", "", "The most first: `cpu` or memory")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := errors.Join(c.set.Settle(args), cli.OneOf("sort-by", c.by, "", "cpu", "memory")); err != nil {
			return err
		}
		if err := c.begin(cmd, *socket); err != nil {
			return err
		}
		return c.pods(cmd.Context())
	}
	return cmd
}

// pods prints those of the chosen pods that there are figures of.
func (c *topTable) pods(ctx context.Context) error {
	all, err := c.client.Pods(ctx, c.set.Filter())
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
	if c.output != "table" {
		return errors.Join(cli.PrintObject(c.out, struct {
			Pods []stats.PodStats `json:"pods"`
		}{found}, c.output), missing)
	}
	t := &cli.Table{Out: c.out, Heading: []string{"NAMESPACE", "NAME", "CPU(cores)", "MEMORY(bytes)"}, Begun: c.bare}
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
		Use: "node", Aliases: []string{"nodes", "no"}, Short: "Print the CPU and the memory that the node uses",
		Args: cli.NoArguments, SilenceUsage: true,
		Long: "Print the CPU and the memory (the working set) that the node uses, as kubectl does. Percentages are of what " +
			"pods can have of it.",
	}
	socket := c.addFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := c.begin(cmd, *socket); err != nil {
			return err
		}
		return c.node()
	}
	return cmd
}

func (c *topTable) node() error {
	f := c.figures
	if c.output != "table" {
		return cli.PrintObject(c.out, struct {
			Node        stats.NodeStats `json:"node"`
			Allocatable v1.ResourceList `json:"allocatable,omitempty"`
			Agent       api.Process     `json:"agent"`
		}{f.Node, f.Allocatable, f.Agent}, c.output)
	}
	t := &cli.Table{Out: c.out, Heading: []string{"NAME", "CPU(cores)", "CPU(%)", "MEMORY(bytes)", "MEMORY(%)"}, Begun: c.bare}
	return t.Print([][]string{{
		f.Node.NodeName, cores(f.Node.CPU), percent(cpuOf(f.Node.CPU), f.Allocatable.Cpu()), megabytes(f.Node.Memory),
		percent(memoryOf(f.Node.Memory), f.Allocatable.Memory()),
	}})
}
