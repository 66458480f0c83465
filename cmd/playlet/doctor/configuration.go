package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/resources"
	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/actors/sources/base"
	"github.com/playlet-dev/playlet/actors/sources/file"
	"github.com/playlet-dev/playlet/cmd/playlet/cli"
	"github.com/playlet-dev/playlet/config"
	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
)

// checkConfiguration reports the source of the configuration, and its settings without effect. An unreadable configuration has
// ended the command before.
func checkConfiguration(_ context.Context, m *Machine) []Finding {
	from := m.source()
	if m.Unread != "" {
		return warn("sudo playlet doctor", "%s: this is not the configuration of the installed service (%s), "+
			"which only root can read", from, m.Unread)
	}
	if errors.Is(m.Unasked, fs.ErrPermission) {
		return warn("sudo playlet doctor", "%s: this may not be the configuration of the running agent, which was not asked: %v",
			from, m.Unasked)
	}
	var mistakes []Finding
	for _, w := range m.Warnings {
		if w.Mistake {
			mistakes = append(mistakes, fail("correct the field, or remove it", "%s: %s", w.Flag, w.Message)...)
		}
	}
	if len(mistakes) > 0 {
		return mistakes
	}
	if err := m.Node.CheckCPUs(resources.OnlineCPUs(m.Sys)); err != nil {
		return fail("correct the field named here; the agent does not start with it", "%s: %v", from, err)
	}
	if len(m.Warnings) == 0 {
		return ok("%s; node %s, root folder %s", from, m.Node.NodeName, m.Node.RootDir)
	}
	var named, whole []string
	for _, w := range m.Warnings {
		named = append(named, w.Flag)
		whole = append(whole, w.Flag+": "+w.Message)
	}
	const readable = 3
	if len(whole) <= readable {
		return warn("remove the settings that are not needed", "%s; %s", from, strings.Join(whole, "; "))
	}
	slices.Sort(named)
	return warn("the agent's log explains each at its start; remove those that are not needed",
		"%s; these settings have no effect, are outdated, or are insecure: %s", from, strings.Join(slices.Compact(named), ", "))
}

// source names the configuration that is checked.
func (m *Machine) source() string {
	from := strings.Join(slices.DeleteFunc([]string{m.Node.ConfigFile, m.Node.ConfigDir},
		func(path string) bool { return path == "" }), " and ")
	switch {
	case m.Running:
		agent := "the running agent"
		if m.RunningPID != 0 {
			agent += fmt.Sprintf(", process %d", m.RunningPID)
		}
		return agent + ": " + cmp.Or(from, "its flags and defaults")
	case m.Service != "" && from != "":
		return m.Service + ", " + from
	case errors.Is(m.Unasked, api.ErrNotRunning):
		return cmp.Or(m.Service, "flags and defaults, as no agent answers at "+m.Socket+" and no service is installed")
	}
	return cmp.Or(from, m.Service, "flags and defaults")
}

// checkManifests looks at where pods come from, and reads manifests as the agent would.
func checkManifests(_ context.Context, m *Machine) []Finding {
	path := m.Node.Kubelet.StaticPodPath
	if path == "" {
		if m.Node.Kubelet.StaticPodURL != "" {
			return ok("no folder is configured; manifests come from a URL")
		}
		return ok("no folder is configured; pods are submitted (playlet run)")
	}
	switch _, err := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist):
		return warn("mkdir -p "+path+"; until then it counts as empty", "%s does not exist", path)
	case err != nil:
		return fail("check that the folders above it are readable", "%v", err)
	}
	read, err := file.Check(path, manifestNode(m.Node))
	if err != nil {
		return fail("check that it is readable", "%v", err)
	}
	found := append(manifestFindings(read.Problems), m.tooMuch(read.Pods)...)
	return or(found, ok("%s, %d file%s", path, read.Files, map[bool]string{false: "s"}[read.Files == 1]))
}

// manifestNode describes the node for which manifests are read.
func manifestNode(n *config.Node) base.Node {
	return base.Node{NodeName: n.NodeName, Objects: n.ObjectDir != "", Cluster: !n.Standalone()}
}

// Manifests returns the faults of a kubelet's manifests at path, a file or folder, and those that playlet reads in another way.
// An absent path has none.
func Manifests(path string, node base.Node) []Finding {
	read, err := file.Check(path, node)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fail("check that it is readable", "%v", err)
	}
	found := manifestFindings(read.Problems)
	for _, path := range slices.Sorted(maps.Keys(read.Several)) {
		found = append(found, warn("remove the pods that are not wanted", "%s has %d documents: a kubelet runs the first alone, "+
			"playlet runs all", path, read.Several[path])...)
	}
	return found
}

// manifestFindings returns the problems of manifests as findings.
func manifestFindings(problems []messages.ManifestProblem) (found []Finding) {
	for _, p := range problems[:min(len(problems), shownManifests)] {
		if p.Warning {
			found = append(found, warn("correct it: the pod runs without it", "%s", cli.Plain(api.ProblemText(p)))...)
			continue
		}
		found = append(found, fail("correct it: the agent does not run this pod", "%s", cli.Plain(api.ProblemText(p)))...)
	}
	if more := len(problems) - shownManifests; more > 0 {
		found = append(found, fail("correct these, too", "%d more problems", more)...)
	}
	return found
}

// shownManifests is how many problems of manifests are shown.
const shownManifests = 10

// tooMuch warns of pods that this machine cannot hold: they ask for more than it has, or for the host's port of another.
func (m *Machine) tooMuch(pods []*v1.Pod) (found []Finding) {
	ports, cpus := map[string]string{}, runtime.NumCPU()
	total, _, _ := m.memory() // an unreadable value is another check's finding
	for _, p := range pods {
		const less = "reduce its request: a node of a cluster refuses it, and a standalone one overcommits"
		name := p.Namespace + "/" + p.Name
		asks := translate.PodRequests(p)
		if cpu := asks[v1.ResourceCPU]; cpu.MilliValue() > int64(cpus)*1000 {
			found = append(found,
				warn(less, "pod %s requests %s CPUs, and this machine has %d", name, &cpu, cpus)...)
		}
		if memory := asks[v1.ResourceMemory]; total > 0 && memory.Value() > int64(total) { //nolint:gosec // no machine has 8 EiB
			found = append(found,
				warn(less, "pod %s requests %s of memory, and this machine has %s", name, &memory, bytesText(total))...)
		}
		for i := range p.Spec.Containers {
			for _, port := range p.Spec.Containers[i].Ports {
				if port.HostPort == 0 {
					continue
				}
				key := fmt.Sprintf("%s:%d/%s", port.HostIP, port.HostPort, cmp.Or(port.Protocol, v1.ProtocolTCP))
				if other := ports[key]; other != "" && other != name {
					found = append(found, warn("give one of them another hostPort: the second is refused",
						"pods %s and %s both use host port %d", other, name, port.HostPort)...)
				}
				ports[key] = name
			}
		}
	}
	return found
}
