//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/playlet-dev/playlet/actors/resources/resourcestest"
	"github.com/playlet-dev/playlet/e2e/stack"
)

// memoryOf returns "type nodes size" for the memory of a pod's first container, by the pod resources API.
func memoryOf(t *testing.T, a *stack.Agent, name string) (got []string) {
	t.Helper()
	conn, err := grpc.NewClient("unix:"+filepath.Join(a.RootDir, "pod-resources", "kubelet.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	defer func() { must(t, conn.Close()) }()
	list, err := podresources.NewPodResourcesListerClient(conn).List(t.Context(), &podresources.ListPodResourcesRequest{},
		grpc.WaitForReady(true))
	must(t, err)
	for _, p := range list.GetPodResources() {
		if p.GetName() != onNode(name) {
			continue
		}
		for _, m := range p.GetContainers()[0].GetMemory() {
			var nodes []string
			for _, n := range m.GetTopology().GetNodes() {
				nodes = append(nodes, fmt.Sprint(n.GetID()))
			}
			got = append(got, fmt.Sprint(m.GetMemoryType(), " ", strings.Join(nodes, ","), " ", m.GetSize()))
		}
	}
	return got
}

// A guaranteed pod gets memory of a NUMA node: the runtime, the pod resources API and the checkpoint show it, also after the
// agent was killed. A pod that requests a device of a node that the machine lacks waits, and its explanation names the resource
// and the machine's nodes.
func TestMemoryOfNUMANodes(t *testing.T) {
	if nodes, err := filepath.Glob("/sys/devices/system/node/node[0-9]*"); err != nil || len(nodes) != 1 {
		t.Skipf("this machine has %d NUMA nodes; the test knows the answers for one", len(nodes))
	}
	_, rest, last := lastCPU(t)
	s := stack.Start(t, stack.Options{})
	a := agentWith(t, s, func(a *stack.Agent) {
		quick(a)
		giveOne(a, rest)
		a.Config["memoryManagerPolicy"], a.Config["topologyManagerPolicy"] = "Static", "single-numa-node"
		a.Config["reservedMemory"] = []any{map[string]any{"numaNode": 0, "limits": map[string]any{"memory": "1Mi"}}}
	})
	state := filepath.Join(a.RootDir, "memory_manager_state")
	const spec = "terminationGracePeriodSeconds: 1\ncontainers: [{name: c, image: HELLO, args: [sleep, '100000'], " +
		"resources: {limits: {cpu: 1, memory: 64Mi%s}}}]"
	write := func(name, more string) { must(t, a.Write(name+".yaml", manifest(s, name, fmt.Sprintf(spec, more)))) }
	holds := func(name string) {
		t.Helper()
		c := up(t, s, name, "c")
		awaitCPUs(t, s, c.Id, last)
		status, err := s.CRI().ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: c.Id})
		must(t, err)
		if got := status.GetStatus().GetResources().GetLinux().GetCpusetMems(); got != "0" { // of a shared one it is empty
			t.Errorf("the container of pod %s has memory of NUMA nodes %q, want 0", name, got)
		}
		await(t, func() error {
			if got := fmt.Sprint(memoryOf(t, a, name)); got != "[memory 0 67108864]" {
				return fmt.Errorf("the pod resources API has memory %s of pod %s", got, name)
			}
			text, err := os.ReadFile(state)
			if !strings.Contains(string(text), `"c":[{"numaAffinity":[0],"type":"memory","size":67108864}]`) {
				err = errors.Join(err, fmt.Errorf("the checkpoint is %s", text))
			}
			return err
		})
	}
	write("first", "")
	holds("first")
	must(t, a.Kill9())
	must(t, a.Start())
	holds("first")
	must(t, a.Remove("first.yaml"))

	p := resourcestest.NewPlugin(filepath.Join(a.RootDir, "device-plugins"), gpu, "far")
	p.On("far", 1)
	must(t, p.Start(t.Context()))
	t.Cleanup(p.Stop)
	write("apart", ", example.com/gpu: 1")
	awaitWaiting(t, a, "apart", "TopologyAffinityError", "Resources cannot be allocated with Topology locality")
	const want = "policy single-numa-node: " + gpu + " fits on no preferred set of the NUMA nodes 0"
	await(t, func() error { // at first the CPU belongs to the pod that ends
		out, err := a.Command(t.Context(), "explain", "apart")
		if !strings.Contains(strings.Join(strings.Fields(string(out)), " "), want) {
			err = errors.Join(err, fmt.Errorf("explained as %s, want %s", out, want))
		}
		return err
	})
	p.Stop()
	must(t, a.Remove("apart.yaml"))
	write("second", "")
	holds("second")
}
