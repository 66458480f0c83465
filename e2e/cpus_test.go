//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/e2e/stack"
	"k8s.io/utils/cpuset"
)

// allowed returns the CPUs in the text of a process's status in /proc.
func allowed(status string) string {
	_, rest, _ := strings.Cut(status, "Cpus_allowed_list:")
	list, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(list)
}

// runsOn waits until the first process of a container may run on these CPUs only.
func runsOn(t *testing.T, s *stack.Stack, pod, want string) {
	t.Helper()
	id := up(t, s, pod, "c").Id
	await(t, func() error {
		pid, err := s.ContainerPID(t.Context(), id)
		if err != nil {
			return err
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err == nil && allowed(string(status)) != want {
			err = fmt.Errorf("container of pod %s runs on CPUs %s, want %s", pod, allowed(string(status)), want)
		}
		return err
	})
}

// A pod has the last CPU to itself, without a quota, and others do not run there. It keeps the CPU while the agent is killed.
// Another pod waits for it until the first is gone. In the end all share it again. With another policy the agent does not start.
func TestExclusiveCPUs(t *testing.T) {
	online, err := os.ReadFile("/sys/devices/system/cpu/online")
	must(t, err)
	all, err := cpuset.Parse(strings.TrimSpace(string(online)))
	must(t, err)
	if all.Size() < 2 {
		t.Skip("this machine has one CPU, and a pod can only have one to itself that is not reserved")
	}
	last := cpuset.New(all.List()[all.Size()-1])
	rest := all.Difference(last)
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		a := agentWith(t, s, func(a *stack.Agent) {
			quick(a)
			a.Config["cpuManagerPolicy"], a.Config["reservedSystemCPUs"] = "static", rest.String()
			a.Config["cpuManagerReconcilePeriod"] = "1s"
		})
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
		shared("early")
		begins("early", all.String())
		exclusive("first")
		begins("first", last.String())
		runsOn(t, s, "early", rest.String())
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
		begins("other", rest.String())
		runsOn(t, s, "first", last.String())
		if is := up(t, s, "first", "c").Id; is != was {
			t.Errorf("its container was %s and is %s", was, is)
		}
		must(t, a.Remove("first.yaml"))
		begins("late", last.String())
		must(t, a.Remove("late.yaml"))
		runsOn(t, s, "early", all.String())
		runsOn(t, s, "other", all.String())
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
