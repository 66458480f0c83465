//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/e2e/cluster"
	"github.com/playlet-dev/playlet/e2e/stack"
	"k8s.io/utils/cpuset"
)

// allowed returns the CPUs in the text of a process's status in /proc.
func allowed(status string) string {
	_, rest, _ := strings.Cut(status, "Cpus_allowed_list:")
	list, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(list)
}

// awaitCPUs waits until the first process of a container may run on these CPUs only.
func awaitCPUs(t *testing.T, s *stack.Stack, id, want string) {
	t.Helper()
	await(t, func() error {
		pid, err := s.ContainerPID(t.Context(), id)
		if err != nil {
			return err
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err == nil && allowed(string(status)) != want {
			err = fmt.Errorf("container %s runs on CPUs %s, want %s", id, allowed(string(status)), want)
		}
		return err
	})
}

// lastCPU returns the CPUs of this machine, all but the last one, and the last one.
func lastCPU(t *testing.T) (all, rest, last string) {
	t.Helper()
	online, err := os.ReadFile("/sys/devices/system/cpu/online")
	must(t, err)
	set, err := cpuset.Parse(strings.TrimSpace(string(online)))
	must(t, err)
	if set.Size() < 2 {
		t.Skip("this machine has one CPU, and a pod can only have one to itself that is not reserved")
	}
	own := cpuset.New(set.List()[set.Size()-1])
	return set.String(), set.Difference(own).String(), own.String()
}

// giveOne configures the static policy with which pods can have the last CPU to themselves.
func giveOne(a *stack.Agent, rest string) {
	a.Config["cpuManagerPolicy"], a.Config["reservedSystemCPUs"] = "static", rest
	a.Config["cpuManagerReconcilePeriod"] = "1s"
}

// A pod has the last CPU to itself, without a quota, and others do not run there. It keeps the CPU while the agent is killed.
// Another pod waits for it until the first is gone. In the end all share it again. With another policy the agent does not start.
func TestExclusiveCPUs(t *testing.T) {
	all, rest, last := lastCPU(t)
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		a := agentWith(t, s, func(a *stack.Agent) { quick(a); giveOne(a, rest) })
		file := filepath.Join(a.RootDir, "cpu_manager_state")
		const status = "terminationGracePeriodSeconds: 1\ncontainers: [{name: c, image: HELLO, args: [cat, /proc/self/status, --, sleep]"
		shared := func(name string) { must(t, a.Write(name+".yaml", manifest(s, name, status+"}]"))) }
		exclusive := func(name string) {
			must(t, a.Write(name+".yaml", manifest(s, name, status+", resources: {limits: {cpu: 1, memory: 64Mi}}}]")))
		}
		begins := func(name, want string) {
			t.Helper()
			c := up(t, s, name, "c")
			await(t, func() error {
				log, err := s.Logs(t.Context(), c.Id)
				if got := allowed(log); err == nil && got != want {
					err = fmt.Errorf("container of pod %s began on CPUs %s, want %s", name, got, want)
				}
				return err
			})
		}
		runsOn := func(name, want string) {
			t.Helper()
			awaitCPUs(t, s, up(t, s, name, "c").Id, want)
		}
		shared("early")
		begins("early", all)
		exclusive("first")
		begins("first", last)
		runsOn("early", rest)
		was := up(t, s, "first", "c").Id
		group := groupOf(t, s, was)
		for _, g := range []string{group, filepath.Dir(group)} {
			groupHolds(t, g, "cpu/cpu.cfs_quota_us", "cpu.max", "-1", "max 100000")
		}
		exclusive("late")
		awaitWaiting(t, a, "late", "UnexpectedAdmissionError", "not enough cpus available to satisfy request: requested=1, available=0")
		out, err := a.Command(t.Context(), "explain", "late")
		if want := "container c requests 1, and 0 of 1 are free; default/" + onNode("first") + " has 1"; !strings.Contains(
			strings.Join(strings.Fields(string(out)), " "), want) {
			t.Errorf("explained as %s (%v), want %s", out, err, want)
		}

		must(t, a.Kill9())
		must(t, a.Start())
		shared("other")
		begins("other", rest)
		runsOn("first", last)
		if is := up(t, s, "first", "c").Id; is != was {
			t.Errorf("its container was %s and is %s", was, is)
		}
		must(t, a.Remove("first.yaml"))
		begins("late", last)
		must(t, a.Remove("late.yaml"))
		runsOn("early", all)
		runsOn("other", all)
		await(t, func() error {
			text, err := os.ReadFile(file)
			if want := fmt.Sprintf(`{"policyName":"static","defaultCpuSet":"%s","checksum":`, all); err == nil &&
				!strings.HasPrefix(string(text), want) {
				err = fmt.Errorf("%s holds %s", file, text)
			}
			return err
		})

		_, err = a.Term()
		must(t, err)
		a.Config["cpuManagerPolicy"] = "none"
		must(t, a.Start())
		code, err := a.Wait(t.Context())
		must(t, err)
		if log := a.Log(); code == 0 || !strings.Contains(log, "drain this node and remove the file") {
			t.Errorf("exit code %d: %s", code, log)
		}
		must(t, os.Remove(file))
		must(t, a.Start())
		must(t, a.Remove("early.yaml"))
		must(t, a.Remove("other.yaml"))
		nothing(t, s)
	})
}

// A kubelet's node with a pod that has a CPU to itself is taken over, and given back with another such pod. Each side keeps the
// other's assignments and no container is started again.
func TestTakenOver_ExclusiveCPUs(t *testing.T) {
	_, rest, last := lastCPU(t)
	c := cluster.Shared(t)
	n, ns := c.Node(t), c.Namespace(t)
	s, a := inCluster(t, c, n, func(a *stack.Agent) { asKubelet(t, a); giveOne(a, rest) })
	const container = "terminationGracePeriodSeconds: 1\ncontainers: [{name: c, image: HELLO, args: [sleep]"
	still := func(name, want string) {
		t.Helper()
		id := awaitAPIPod(t, c, ns, name, ready).Status.ContainerStatuses[0].ContainerID
		awaitCPUs(t, s, strings.TrimPrefix(id, "containerd://"), want)
	}
	runs := func(name, more, want string) {
		t.Helper()
		create(t, c, ns, n.Name, manifest(s, name, container+more))
		still(name, want)
	}
	const exclusive, shared = ", resources: {limits: {cpu: 1, memory: 64Mi}}}]", "}]"
	runs("kubelets", exclusive, last)
	runs("beside", shared, rest)
	before := containersByID(t, s)
	_, err := a.Term()
	must(t, err)
	a.Binary = "" // ours
	must(t, a.Start())
	settled(t, a)
	runs("more", shared, rest)
	untouched(t, s, before)
	still("kubelets", last)
	remove(t, c, ns, "kubelets")
	awaitNoAPIPod(t, c, ns, "kubelets")
	runs("ours", exclusive, last)

	before = containersByID(t, s)
	_, err = a.Term()
	must(t, err)
	asKubelet(t, a)
	must(t, a.Start())
	settled(t, a)
	runs("again", shared, rest)
	untouched(t, s, before)
	still("ours", last)
	still("beside", rest)
	for _, name := range []string{"beside", "more", "ours", "again"} {
		remove(t, c, ns, name)
		awaitNoAPIPod(t, c, ns, name)
	}
	must(t, s.AwaitNoLeftovers())
}
