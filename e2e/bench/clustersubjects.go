package main

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/playlet-dev/playlet/e2e/stack"
)

// subjects are those that were asked for, Playlet first, each with a node of its own.
func (b *clusterBench) subjects(t *owner) ([]*subject, error) {
	binaries := []struct{ name, path string }{{"playlet", ""}}
	if *second {
		path, err := stack.Kubelet()
		if err != nil {
			return nil, err
		}
		binaries = append(binaries, struct{ name, path string }{"kubelet", path})
	}
	if *binary != "" {
		binaries = append(binaries, struct{ name, path string }{filepath.Base(*binary), *binary})
	}
	var out []*subject
	for _, of := range binaries {
		node := b.cluster.Node(t)
		agent, err := b.stack.NewAgent(node.Args()...)
		if err != nil {
			return nil, err
		}
		if agent.Binary = of.path; of.name == "kubelet" { // or its cAdvisor knows no containers, which takes less of it
			agent.Args = append(agent.Args, "--containerd="+b.stack.Socket())
		}
		agent.Config["maxPods"], agent.Config["containerLogMaxSize"] = 1000, "1Gi"                          // a log that is followed is not rotated
		agent.Config["clusterDNS"], agent.Config["clusterDomain"] = []string{"10.96.0.10"}, "cluster.local" // or each pod is warned
		agent.Config["authentication"] = map[string]any{"x509": map[string]any{"clientCAFile": b.cluster.CAFile}}
		if *evictions > 0 {
			undo, err := makeSmall(agent)
			if err != nil {
				return nil, err
			}
			t.Cleanup(undo)
		}
		out = append(out, &subject{name: of.name, root: agent.RootDir, start: agent.Start, kill: agent.Kill9, pid: agent.PID, log: agent.Log,
			node: node, api: b.api(t, agent.Config["port"]), logs: agent.PodLogsDir})
	}
	if *only != "" {
		out = slices.DeleteFunc(out, func(s *subject) bool { return s.name != *only })
	}
	if len(out) == 0 {
		return nil,
			fmt.Errorf("-only %s: no subject has this name; there are playlet, kubelet with -kubelet, and the file's name with -binary", *only)
	}
	return out, nil
}

// tellRatios prints each subject's best figures beside one another.
func (b *clusterBench) tellRatios(subjects []*subject) {
	fmt.Printf("\nbest of %d rounds\n%-52s %10s", *rounds, "", "floor")
	for _, sub := range subjects {
		fmt.Printf(" %10s %9s %9s", sub.name, "of floor", "of first")
	}
	fmt.Println()
	var figures []string
	for f := range b.gathered {
		figures = append(figures, f)
	}
	slices.Sort(figures)
	for _, f := range figures {
		values := b.gathered[f]
		floor, has := values["floor"]
		cell := "-"
		if has {
			cell = fmt.Sprintf("%.3f", floor)
		}
		fmt.Printf("%-52s %10s", f, cell)
		for _, sub := range subjects {
			value, measured := values[sub.name]
			own, ofFloor, ofFirst := "-", "-", "-"
			if measured {
				own = fmt.Sprintf("%.3f", value)
			}
			if measured && has && floor > 0 {
				ofFloor = fmt.Sprintf("%.2f", value/floor)
			}
			if first := values[subjects[0].name]; measured && first > 0 {
				ofFirst = fmt.Sprintf("%.2f", value/first)
			}
			fmt.Printf(" %10s %9s %9s", own, ofFloor, ofFirst)
		}
		fmt.Println()
	}
}
