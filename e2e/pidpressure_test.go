//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/e2e/stack"
	corev1 "k8s.io/api/core/v1"
)

// forkBomb writes a pod that makes so many processes and no more, once there is the file go.
func forkBomb(t *testing.T, s *stack.Stack, a *stack.Agent, name string, most int) (start string) {
	t.Helper()
	data := t.TempDir()
	must(t, a.Write(name+".yaml", manifest(s, name, withTool(t,
		fmt.Sprintf("containers: [{name: c, image: HELLO, command: [%s, tool, bomb, \"%d\"], TOOL}]", toolPath, most), data))))
	awaitPod(t, a, name, ready)
	return filepath.Join(data, "go")
}

// tasksLeft returns the number of tasks that this machine can still create, shared with all its users.
func tasksLeft(t *testing.T) int {
	t.Helper()
	number := func(path string) int {
		t.Helper()
		text, err := os.ReadFile(path)
		must(t, err)
		_, tasks, is := strings.Cut(string(text), "/") // of /proc/loadavg, with "running/all" as the fourth field
		if !is {
			tasks = string(text)
		}
		n, err := strconv.Atoi(strings.Fields(tasks)[0])
		must(t, err)
		return n
	}
	return min(number("/proc/sys/kernel/pid_max"), number("/proc/sys/kernel/threads-max")) - number("/proc/loadavg")
}

// A pod that uses up the node's process IDs is evicted; with podPidsLimit it gets no more than that, without an effect on others.
// The threshold is as far below the remaining number as other processes on this machine may come and go.
func TestForkBombs(t *testing.T) {
	s := stack.Start(t, stack.Options{})
	a := short(t, s, map[string]string{}, func(a *stack.Agent) { a.Config["podPidsLimit"] = 4000 }) // whatever happens
	const most, room = 2500, 1000
	must(t, a.Write("small.yaml", manifest(s, "small", withVolume(""))))
	start := forkBomb(t, s, a, "big", most)
	was := up(t, s, "small", "c").Id
	restart := func(limit int, threshold string) {
		t.Helper()
		if code, err := a.Term(); err != nil || code != 0 {
			t.Fatalf("the agent ended with %d: %v", code, err)
		}
		a.Config["podPidsLimit"] = limit
		a.Config["evictionHard"] = map[string]string{"memory.available": "1Mi", "pid.available": threshold}
		must(t, a.Start())
		settled(t, a)
	}
	threshold := fmt.Sprint(tasksLeft(t) - room)
	restart(4000, threshold)
	awaitPod(t, a, "big", ready)
	p := cross(t, a)
	put(t, start, "")
	awaitPod(t, a, "big", evicted("The node was low on resource: pids. Threshold quantity: "+threshold+", available: "))
	p.ends(corev1.NodePIDPressure, "met pid.available", "evicted big by pid.available")
	unharmed(t, s, a, "small", was)

	const limit = 100
	restart(limit, "1")
	p = cross(t, a)
	put(t, forkBomb(t, s, a, "bounded", most), "")
	bounded := up(t, s, "bounded", "c")
	made := 0
	await(t, func() error {
		text, err := s.Logs(t.Context(), bounded.Id)
		if err == nil && !strings.Contains(text, "resource temporarily unavailable") {
			err = errors.New("it meets no limit: " + text)
		}
		if err == nil {
			_, err = fmt.Sscanf(text, "made %d", &made)
		}
		return err
	})
	if made >= limit {
		t.Errorf("a pod of %d process IDs at most has made %d processes", limit, made)
	}
	must(t, a.Write("late.yaml", manifest(s, "late", withVolume(""))))
	awaitPod(t, a, "late", ready)
	p.ends("")
	unharmed(t, s, a, "bounded", bounded.Id)
	unharmed(t, s, a, "small", was)
}
