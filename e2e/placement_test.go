//go:build e2e

package e2e

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/cpuset"

	"github.com/playlet-dev/playlet/cri/sim"
	"github.com/playlet-dev/playlet/e2e/stack"
)

// numaMachine describes the processors of a machine: NUMA nodes are spread evenly over sockets. As on real ones, the first
// thread of each core has the lower numbers.
type numaMachine struct{ sockets, nodes, coresPerNode, threads int }

func (m numaMachine) cores() int { return m.nodes * m.coresPerNode }

// cpus returns the CPUs of a node.
func (m numaMachine) cpus(node int) cpuset.CPUSet {
	var ids []int
	for core := node * m.coresPerNode; core < (node+1)*m.coresPerNode; core++ {
		for thread := range m.threads {
			ids = append(ids, core+thread*m.cores())
		}
	}
	return cpuset.New(ids...)
}

// spans returns the number of nodes that the CPUs are on.
func (m numaMachine) spans(cpus cpuset.CPUSet) (n int) {
	for node := range m.nodes {
		if !m.cpus(node).Intersection(cpus).IsEmpty() {
			n++
		}
	}
	return n
}

// write makes the folders cpu and node of such a machine's /sys/devices/system, with 4 GiB per node and a cache per node.
func (m numaMachine) write(t *testing.T, dir string) {
	t.Helper()
	file := func(text string, path ...string) {
		name := filepath.Join(append([]string{dir}, path...)...)
		must(t, os.MkdirAll(filepath.Dir(name), 0o755))
		must(t, os.WriteFile(name, []byte(text+"\n"), 0o644))
	}
	all := fmt.Sprintf("0-%d", m.cores()*m.threads-1)
	for _, name := range []string{"online", "possible", "present"} {
		file(all, "cpu", name)
		file(fmt.Sprintf("0-%d", m.nodes-1), "node", name)
	}
	for node := range m.nodes {
		name, cpus := fmt.Sprint("node", node), m.cpus(node)
		file(cpus.String(), "node", name, "cpulist")
		file(fmt.Sprintf("Node %d MemTotal: %d kB", node, 4<<20), "node", name, "meminfo")
		var distances []string
		for other := range m.nodes {
			distance := 21 // another socket
			switch {
			case other == node:
				distance = 10
			case other*m.sockets/m.nodes == node*m.sockets/m.nodes:
				distance = 12
			}
			distances = append(distances, fmt.Sprint(distance))
		}
		file(strings.Join(distances, " "), "node", name, "distance")
		file("0", "node", name, "hugepages", "hugepages-2048kB", "nr_hugepages")
		mask := uint64(0)
		for _, id := range cpus.List() {
			mask |= 1 << id
		}
		for _, id := range cpus.List() {
			cpu := fmt.Sprint("cpu", id)
			file("1", "cpu", cpu, "online")
			file(fmt.Sprint(node*m.sockets/m.nodes), "cpu", cpu, "topology", "physical_package_id")
			file(fmt.Sprint(id%m.cores()), "cpu", cpu, "topology", "core_id")
			for name, text := range map[string]string{"id": fmt.Sprint(node), "size": "32768K", "level": "3", "type": "Unified",
				"shared_cpu_map": fmt.Sprintf("%x", mask), "shared_cpu_list": cpus.String()} {
				file(text, "cpu", cpu, "cache", "index3", name)
			}
			must(t, os.Symlink(filepath.Join("../../cpu", cpu), filepath.Join(dir, "node", name, cpu)))
		}
	}
}

// within returns a program that runs another one, which finds the processors of the folder in /sys.
func within(t *testing.T, processors, program string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "agent")
	must(t, os.WriteFile(name, fmt.Appendf(nil, `#!/bin/sh
exec unshare --mount --propagation slave sh -c 'for d in cpu node; do mount --bind %s/$d /sys/devices/system/$d || exit; done; exec %s "$@"' sh "$@"
`, processors, program), 0o755))
	return name
}

// placementCase is a sequence of static pods. A step is the name of a pod with its CPUs and MiB of memory, such as "a 2 64"; or
// "-a", the end of pod a.
type placementCase struct {
	name    string
	machine numaMachine
	config  map[string]any
	steps   string
}

var (
	fourNodes  = numaMachine{sockets: 2, nodes: 4, coresPerNode: 2, threads: 2} // 16 CPUs
	oneThread  = numaMachine{sockets: 2, nodes: 2, coresPerNode: 4, threads: 1} // 8 CPUs
	bigSockets = numaMachine{sockets: 2, nodes: 2, coresPerNode: 4, threads: 2} // 16 CPUs
)

// staticMemory has the static memory manager.
var staticMemory = map[string]any{"memoryManagerPolicy": "Static", "kubeReserved": map[string]any{"memory": "511Mi"},
	"reservedMemory": []any{map[string]any{"numaNode": 0, "limits": map[string]any{"memory": "512Mi"}}}}

// with returns a configuration with further settings.
func with(config map[string]any, more map[string]any) map[string]any {
	all := maps.Clone(config)
	maps.Copy(all, more)
	return all
}

// cpuOptions switches on options of the CPU manager, alpha ones too.
func cpuOptions(names ...string) map[string]any {
	options := map[string]string{}
	for _, name := range names {
		options[name] = "true"
	}
	return map[string]any{"cpuManagerPolicyOptions": options, "featureGates": map[string]bool{"CPUManagerPolicyAlphaOptions": true}}
}

var placementCases = []placementCase{
	{"static", oneThread, nil, "a 2 32, b 1 32, c 2 32, -a, d 3 32, -b, e 1 32, -c, f 2 32"},
	{"threads", fourNodes, nil, "a 1 32, b 3 32, c 4 32, -b, d 5 32, -a, e 2 32, f 1 32"},
	{"full cores", fourNodes, with(cpuOptions("full-pcpus-only"), map[string]any{"topologyManagerPolicy": "restricted"}),
		"a 2 32, b 1 32, c 4 32, d 6 32, -a, e 2 32, -c, f 4 32"},
	{"one node", fourNodes, with(staticMemory, map[string]any{"topologyManagerPolicy": "single-numa-node"}),
		"a 2 256, b 5 32, c 1 3800, d 2 1700, e 4 1700, -d, f 2 32, g 3 5000"},
	{"distributed", bigSockets, with(cpuOptions("distribute-cpus-across-numa"), map[string]any{"topologyManagerPolicy": "best-effort",
		"topologyManagerPolicyOptions": map[string]string{"prefer-closest-numa-nodes": "true"}}),
		"a 8 32, b 2 32, -a, c 6 32, d 1 32, -b, e 4 32"},
	{"whole pods", fourNodes, with(staticMemory, map[string]any{"topologyManagerPolicy": "restricted", "topologyManagerScope": "pod"}),
		"a 3 64, b 2 5000, c 6 64, -a, d 4 64, e 1 3900"},
	{"by socket", fourNodes, with(cpuOptions("align-by-socket"), map[string]any{"topologyManagerPolicy": "restricted"}), "a 5 32, b 3 32, -a, c 2 32, d 6 32"},
	{"caches", bigSockets, cpuOptions("prefer-align-cpus-by-uncorecache"), "a 2 32, b 7 32, c 3 32, -a, d 2 32, -b, e 7 32"},
}

// Exclusive CPUs and memory on machines with several NUMA nodes: the same sequences of pods are admitted and refused as by the
// kubelet, and no pod's CPUs are on more nodes than with it. The runtime is simulated: this machine lacks the CPUs.
func TestPlacement_BesideTheKubelet(t *testing.T) {
	s := stack.Start(t, stack.Options{})
	for _, c := range placementCases {
		t.Run(c.name, func(t *testing.T) {
			ours, theirs := bothPlacements(t, s, c)
			for _, pod := range slices.Sorted(maps.Keys(theirs)) {
				a, errA := cpuset.Parse(ours[pod])
				b, errB := cpuset.Parse(theirs[pod])
				refused := errA != nil || errB != nil
				x, y := ours[pod], theirs[pod]
				// The kubelet finds memory that no nodes have together only when it allocates.
				if refused && x != y && (x != "TopologyAffinityError" || y != "UnexpectedAdmissionError") ||
					!refused && (a.Size() != b.Size() || c.machine.spans(a) > c.machine.spans(b)) {
					t.Errorf("pod %s: got %q on %d nodes, and %q on %d with the kubelet", pod, ours[pod], c.machine.spans(a), theirs[pod],
						c.machine.spans(b))
				}
			}
			t.Logf("kubelet %v", theirs)
			t.Logf("playlet %v", ours)
		})
	}
}

// The same for sequences at random, which leave gaps: in total, pods' CPUs are on no more nodes than with the kubelet.
func TestPlacement_RandomSequences(t *testing.T) {
	s := stack.Start(t, stack.Options{})
	configs := []map[string]any{nil, cpuOptions("distribute-cpus-across-cores"), cpuOptions("prefer-align-cpus-by-uncorecache"),
		{"topologyManagerPolicy": "best-effort"}}
	ours, theirs := 0, 0
	for seed := range uint64(8) {
		random := rand.New(rand.NewPCG(seed, 0))
		c := placementCase{machine: []numaMachine{fourNodes, bigSockets}[seed%2], config: configs[seed/2]}
		c.steps = randomSteps(random, c.machine.cores()*c.machine.threads-1)
		x, y := bothPlacements(t, s, c)
		for _, pod := range slices.Sorted(maps.Keys(y)) {
			a, errA := cpuset.Parse(x[pod])
			b, errB := cpuset.Parse(y[pod])
			if errA != nil || errB != nil || a.Size() != b.Size() {
				t.Errorf("%s: pod %s: got %q, and %q with the kubelet", c.steps, pod, x[pod], y[pod])
				continue
			}
			ours += c.machine.spans(a) - 1
			theirs += c.machine.spans(b) - 1
		}
		t.Logf("%v, %v: %s\nkubelet %v\nplaylet %v", c.machine, c.config, c.steps, y, x)
	}
	if t.Logf("NUMA nodes beyond the first: Playlet %d, kubelet %d", ours, theirs); ours > theirs {
		t.Errorf("pods' CPUs are on %d NUMA nodes beyond the first, with the kubelet on %d", ours, theirs)
	}
}

// randomSteps returns steps that start and end pods, which never have more than the given number of CPUs together.
func randomSteps(random *rand.Rand, free int) string {
	var steps []string
	running := map[string]int{}
	for i := range 14 {
		names := slices.Sorted(maps.Keys(running))
		cpus := 1 + random.IntN(5)
		if len(names) > 0 && (cpus > free || random.IntN(3) == 0) {
			name := names[random.IntN(len(names))]
			free += running[name]
			delete(running, name)
			steps = append(steps, "-"+name)
		}
		if cpus <= free {
			name := fmt.Sprintf("p%02d", i)
			running[name] = cpus
			free -= cpus
			steps = append(steps, fmt.Sprintf("%s %d 32", name, cpus))
		}
	}
	return strings.Join(steps, ", ")
}

// bothPlacements returns the results of placements with the agent and with the kubelet, on the machine of the case.
func bothPlacements(t *testing.T, s *stack.Stack, c placementCase) (ours, theirs map[string]string) {
	t.Helper()
	kubelet, err := stack.Kubelet()
	must(t, err)
	processors := t.TempDir()
	c.machine.write(t, processors)
	theirs = placements(t, s, within(t, processors, kubelet), c, nil)
	ours = placements(t, s, within(t, processors, stack.Binary()), c, func(a *stack.Agent) {
		a.Args = append(a.Args, "--admin-socket="+a.AdminSocket)
	})
	return ours, theirs
}

// placements runs the steps of a case with a program in the agent's place, and returns each pod's CPUs, or the reason that
// refused it.
func placements(t *testing.T, s *stack.Stack, program string, c placementCase, change func(*stack.Agent)) map[string]string {
	t.Helper()
	dir, err := os.MkdirTemp(s.Dir, "sim") // a short path for a socket
	must(t, err)
	runtime, err := sim.Start(sim.Options{Socket: filepath.Join(dir, "s"), CgroupDriver: runtimeapi.CgroupDriver_CGROUPFS})
	must(t, err)
	defer runtime.Close()
	port := 0
	a := agentWith(t, s, func(a *stack.Agent) {
		a.Binary = program
		port = a.Config["port"].(int) + 5000
		maps.Copy(a.Config, map[string]any{"containerRuntimeEndpoint": "unix://" + filepath.Join(dir, "s"), "readOnlyPort": port,
			"address": "127.0.0.1", "cpuManagerPolicy": "static", "reservedSystemCPUs": "0", "fileCheckFrequency": "1s",
			"cpuManagerReconcilePeriod": "1s", "authorization": map[string]any{"mode": "AlwaysAllow"},
			"authentication": map[string]any{"webhook": map[string]any{"enabled": false}}})
		maps.Copy(a.Config, c.config)
		if change != nil {
			change(a)
		}
	})
	defer func() {
		_, err := a.Term()
		must(t, err)
	}()
	got := map[string]string{}
	for step := range strings.SplitSeq(c.steps, ", ") {
		if name, ends := strings.CutPrefix(step, "-"); ends {
			must(t, a.Remove(name+".yaml"))
			awaitServed(t, port, func(pods map[string]*corev1.Pod) bool { return pods[name] == nil })
			continue
		}
		var name string
		var cpus, memory int
		_, err := fmt.Sscan(step, &name, &cpus, &memory)
		must(t, err)
		must(t, a.Write(name+".yaml", fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n  terminationGracePeriodSeconds: 1\n"+
			"  containers: [{name: c, image: i:1, resources: {limits: {cpu: %d, memory: %dMi}}}]\n", name, cpus, memory)))
		pod := awaitServed(t, port, func(pods map[string]*corev1.Pod) bool {
			return pods[name] != nil && (pods[name].Status.Phase == corev1.PodRunning || refusal(t, a, pods[name]) != "")
		})[name]
		if pod.Status.Phase != corev1.PodRunning {
			got[name] = refusal(t, a, pod)
			continue
		}
		var state struct {
			Entries map[string]map[string]string `json:"entries"`
		}
		text, err := os.ReadFile(filepath.Join(a.RootDir, "cpu_manager_state"))
		must(t, err)
		must(t, json.Unmarshal(text, &state))
		got[name] = state.Entries[string(pod.UID)]["c"]
	}
	return got
}

// refusal returns the reason that the pod was not admitted, or nothing. A kubelet ends it; Playlet holds static pods until they
// fit.
func refusal(t *testing.T, a *stack.Agent, pod *corev1.Pod) string {
	t.Helper()
	if pod.Status.Phase == corev1.PodFailed {
		return cmp.Or(pod.Status.Reason, pod.Status.Message, "failed")
	}
	if now, err := a.Snapshot(t.Context()); err == nil { // a kubelet has none
		if p := now.Pod(pod.Name); p != nil && p.Waiting != nil && strings.HasSuffix(p.Waiting.Code, "Error") {
			return p.Waiting.Code
		}
	}
	return ""
}

// awaitServed waits until a read-only port serves pods that are good, and returns them by the names of their manifests.
func awaitServed(t *testing.T, port int, good func(map[string]*corev1.Pod) bool) (pods map[string]*corev1.Pod) {
	t.Helper()
	await(t, func() error {
		r, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/pods", port))
		if err != nil {
			return err
		}
		defer r.Body.Close() //nolint:errcheck // it was read only
		var list corev1.PodList
		if err := json.NewDecoder(r.Body).Decode(&list); err != nil {
			return err
		}
		pods = map[string]*corev1.Pod{}
		var phases []string
		for i, p := range list.Items {
			name, _, _ := strings.Cut(p.Name, "-")
			pods[name] = &list.Items[i]
			phases = append(phases, fmt.Sprint(name, " ", p.Status.Phase, " ", p.Status.Reason))
		}
		if !good(pods) {
			return fmt.Errorf("the pods are %q", phases)
		}
		return nil
	})
	return pods
}
