//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/cmd/playlet/dev/namespaces"
	"github.com/playlet-dev/playlet/e2e/stack"
	corev1 "k8s.io/api/core/v1"
)

// unified reports whether the host only has cgroups of version 2.
func unified() bool {
	_, err := os.Stat("/sys/fs/cgroup/cgroup.controllers")
	return err == nil
}

// groupFile is a file of a cgroup, by its names with version 1 ("memory/memory.limit_in_bytes") and 2 ("memory.max").
func groupFile(group, v1, v2 string) string {
	if unified() {
		return filepath.Join("/sys/fs/cgroup", group, v2)
	}
	controller, file, _ := strings.Cut(v1, "/")
	return filepath.Join("/sys/fs/cgroup", controller, group, file)
}

// groupHolds waits until a file of a cgroup has a value.
func groupHolds(t *testing.T, group, v1, v2, want1, want2 string) {
	t.Helper()
	want := want1
	if unified() {
		want = want2
	}
	await(t, func() error {
		text, err := os.ReadFile(groupFile(group, v1, v2))
		if err != nil {
			return err
		}
		if got := strings.TrimSpace(string(text)); got != want {
			return fmt.Errorf("%s has %s, want %s", groupFile(group, v1, v2), got, want)
		}
		return nil
	})
}

// podGroups lists the groups of pods that there are in any hierarchy.
func podGroups(t *testing.T) (out []string) {
	t.Helper()
	points, err := namespaces.Cgroups()
	must(t, err)
	for _, point := range points {
		dirs, err := namespaces.Below(point)
		must(t, err)
		for _, dir := range dirs {
			if strings.HasPrefix(filepath.Base(dir), "pod") {
				out = append(out, dir)
			}
		}
	}
	return out
}

const groupPods = `
terminationGracePeriodSeconds: 1
containers:
- {name: a, image: HELLO, args: [sleep], resources: {limits: {cpu: 250m, memory: 64Mi}, requests: {cpu: 100m, memory: 32Mi}}}
- {name: b, image: HELLO, args: [sleep], resources: {limits: {cpu: 500m, memory: 64Mi}, requests: {cpu: 100m, memory: 32Mi}}}`

// Pods have groups of their own, with the kubelet's names and values; a group is removed with its pod, including its remaining
// processes.
func TestPodCgroups(t *testing.T) {
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		root := s.CgroupRoot()
		a := agentWith(t, s, func(a *stack.Agent) {
			if s.Kind() == stack.Containerd1 {
				delete(a.Config, "cgroupRoot")
				root = ""
			}
			a.Config["podPidsLimit"] = 77
			a.Config["systemReserved"] = map[string]string{"memory": "1Gi", "pid": "100"}
		})
		must(t, a.Write("p.yaml", manifest(s, "p", groupPods)))
		must(t, a.Write("free.yaml",
			manifest(s, "free", "terminationGracePeriodSeconds: 1\ncontainers: [{name: c, image: HELLO, args: [sleep]}]")))
		must(t, a.Write("sure.yaml", manifest(s, "sure", `
terminationGracePeriodSeconds: 1
containers: [{name: c, image: HELLO, args: [sleep], resources: {limits: {cpu: 20m, memory: 96Mi}}}]`)))
		group := func(name, class string) string {
			uid := awaitPod(t, a, name, inPhase(corev1.PodRunning)).UID
			return filepath.Join(root, "/kubepods", class, "pod"+string(uid))
		}
		p, free, sure := group("p", "burstable"), group("free", "besteffort"), group("sure", "")
		for _, c := range []struct{ group, v1, v2, want1, want2 string }{
			{p, "cpu/cpu.shares", "cpu.weight", "204", "8"},
			{p, "cpu/cpu.cfs_quota_us", "cpu.max", "75000", "75000 100000"},
			{p, "memory/memory.limit_in_bytes", "memory.max", strconv.Itoa(128 << 20), strconv.Itoa(128 << 20)},
			{p, "pids/pids.max", "pids.max", "77", "77"},
			{free, "cpu/cpu.shares", "cpu.weight", "2", "1"},
			{free, "cpu/cpu.cfs_quota_us", "cpu.max", "-1", "max 100000"},
			{sure, "memory/memory.limit_in_bytes", "memory.max", strconv.Itoa(96 << 20), strconv.Itoa(96 << 20)},
			{root + "/kubepods/burstable", "cpu/cpu.shares", "cpu.weight", "204", "8"},
			{root + "/kubepods/besteffort", "cpu/cpu.shares", "cpu.weight", "2", "1"},
		} {
			groupHolds(t, c.group, c.v1, c.v2, c.want1, c.want2)
		}
		total, reserved := memoryTotal(t), int64(1<<30)
		groupHolds(t, root+"/kubepods", "memory/memory.limit_in_bytes", "memory.max", fmt.Sprint(total-reserved),
			fmt.Sprint(total-reserved))
		for _, name := range []string{"a", "b"} { // it is the runtime that puts them there
			if in := groupOf(t, s, up(t, s, "p", name).Id); !strings.HasPrefix(in, p+"/") {
				t.Errorf("container %s runs in %s", name, in)
			}
		}
		for _, name := range []string{"p", "free", "sure"} {
			must(t, a.Remove(name+".yaml"))
		}
		await(t, func() error {
			if left := podGroups(t); len(left) > 0 {
				return fmt.Errorf("there are still %v", left)
			}
			return nil
		})
		groupHolds(t, root+"/kubepods/burstable", "cpu/cpu.shares", "cpu.weight", "2", "1")
	})
}

// memoryTotal is the machine's memory in bytes.
func memoryTotal(t *testing.T) int64 {
	t.Helper()
	text, err := os.ReadFile("/proc/meminfo")
	must(t, err)
	n, err := strconv.ParseInt(strings.Fields(string(text))[1], 10, 64)
	must(t, err)
	return n << 10
}

// groupOf is the cgroup of memory in which the first process of a container runs.
func groupOf(t *testing.T, s *stack.Stack, container string) string {
	t.Helper()
	pid, err := s.ContainerPID(t.Context(), container)
	must(t, err)
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	must(t, err)
	for line := range strings.Lines(string(text)) {
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if part[1] == "memory" || unified() {
			return part[2]
		}
	}
	t.Fatalf("process %d is in no group of memory: %s", pid, text)
	return ""
}

// A pod's own resources apply to its group, and limit its containers together.
func TestPodLevelResources(t *testing.T) {
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		a := s.Agent(t)
		must(t, a.Write("p.yaml", manifest(s, "p", `
terminationGracePeriodSeconds: 1
resources: {limits: {cpu: 500m, memory: 96Mi}, requests: {cpu: 300m}}
containers:
- {name: a, image: HELLO, args: [sleep]}
- {name: b, image: HELLO, args: [sleep], resources: {limits: {memory: 32Mi}}}`)))
		group := s.CgroupRoot() + "/kubepods/burstable/pod" + string(awaitPod(t, a, "p", inPhase(corev1.PodRunning)).UID)
		groupHolds(t, group, "cpu/cpu.cfs_quota_us", "cpu.max", "50000", "50000 100000")
		groupHolds(t, group, "cpu/cpu.shares", "cpu.weight", "307", "12")
		groupHolds(t, group, "memory/memory.limit_in_bytes", "memory.max", strconv.Itoa(96<<20), strconv.Itoa(96<<20))
	})
}

// An agent without its cgroupRoot does not start, and reports that; once it exists, pods run below it.
func TestAnAgentNeedsItsCgroupRoot(t *testing.T) {
	s := stack.Start(t, stack.Options{})
	a := agentWith(t, s, func(a *stack.Agent) { a.Config["cgroupRoot"] = s.CgroupRoot() + "/later" })
	must(t, a.Write("p.yaml", manifest(s, "p", sleeper)))
	code, err := a.Wait(t.Context())
	must(t, err)
	if log := a.Log(); code == 0 || !strings.Contains(log, "cgroupRoot") || !strings.Contains(log, "/later") {
		t.Errorf("exit code %d: %s", code, log)
	}
	points, err := namespaces.Cgroups()
	must(t, err)
	for _, point := range points {
		must(t, os.Mkdir(filepath.Join(point, s.CgroupRoot(), "later"), 0o755))
	}
	must(t, a.Start())
	up(t, s, "p", "c")
	must(t, a.Remove("p.yaml"))
	nothing(t, s)
}

// After a kill and restart of the agent, groups are unchanged, and groups of pods removed in the meantime are removed.
func TestCgroupsOverTheAgentsDeath(t *testing.T) {
	s := stack.Start(t, stack.Options{})
	a := s.Agent(t)
	must(t, a.Write("stays.yaml", manifest(s, "stays", sleeper)))
	must(t, a.Write("goes.yaml", manifest(s, "goes", sleeper)))
	stays := up(t, s, "stays", "c")
	up(t, s, "goes", "c")
	in := groupOf(t, s, stays.Id)
	must(t, a.Kill9())
	must(t, a.Remove("goes.yaml"))
	// A group of a pod that no runtime knows, with a process that lives in it.
	orphan := filepath.Join(s.CgroupRoot(), "kubepods/besteffort/pod00000000-dead")
	stray := exec.Command("sleep", "3600")
	must(t, stray.Start())
	ended := make(chan error, 1)
	go func() { ended <- stray.Wait() }()
	points, err := namespaces.Cgroups()
	must(t, err)
	for _, point := range points {
		if strings.HasSuffix(point, "memory") || unified() {
			must(t, os.Mkdir(filepath.Join(point, orphan), 0o755))
			must(t, os.WriteFile(filepath.Join(point, orphan, "cgroup.procs"), []byte(strconv.Itoa(stray.Process.Pid)), 0))
		}
	}
	must(t, a.Start())
	await(t, func() error {
		left := podGroups(t)
		for _, group := range left {
			if !strings.Contains(group, filepath.Base(filepath.Dir(in))) {
				return fmt.Errorf("there are still %v", left)
			}
		}
		if len(left) == 0 {
			t.Fatal("the group of the pod that stays is gone")
		}
		return nil
	})
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("the stray process ended with %v", err)
	}
	if after := up(t, s, "stays", "c"); after.Id != stays.Id || groupOf(t, s, after.Id) != in {
		t.Errorf("the container that stays is %s in %s, was %s in %s", after.Id, groupOf(t, s, after.Id), stays.Id, in)
	}
}
