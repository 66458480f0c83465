//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/cmd/playlet/dev/namespaces"
	"github.com/playlet-dev/playlet/e2e/stack"
)

// Reservations are enforced on the configured groups, which must exist, and on the groups of the QoS classes.
func TestReservationsAreEnforced(t *testing.T) {
	s := stack.Start(t, stack.Options{})
	root := s.CgroupRoot()
	kube, system := root+"-kube", root+"-system"
	a, err := s.NewAgent()
	must(t, err)
	const mi = 1 << 20
	a.Config["systemReserved"] = map[string]string{"cpu": "300m", "memory": "128Mi"}
	a.Config["kubeReserved"] = map[string]string{"cpu": "500m", "memory": "256Mi", "pid": "200"}
	a.Config["systemReservedCgroup"], a.Config["kubeReservedCgroup"] = system, kube
	a.Config["enforceNodeAllocatable"] = []string{"pods", "system-reserved-compressible", "kube-reserved"}
	a.Config["qosReserved"] = map[string]string{"memory": "50%"}
	a.Config["featureGates"] = map[string]bool{"QOSReserved": true}
	must(t, a.Start())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if code, err := a.Wait(ctx); err != nil || code != 1 || !strings.Contains(a.Log(), "kubeReserved, cgroup "+kube+": it does not exist") {
		t.Errorf("without its groups the agent ends with %d, %v:\n%s", code, err, a.Log())
	}
	points, err := namespaces.Cgroups()
	must(t, err)
	for _, group := range []string{kube, system} {
		for _, point := range points {
			dir := filepath.Join(point, group)
			must(t, os.Mkdir(dir, 0o755))
			t.Cleanup(func() { _ = os.Remove(dir) })
		}
	}
	must(t, a.Start())
	must(t, a.Write("sure.yaml", manifest(s, "sure",
		`containers: [{name: c, image: HELLO, args: [sleep], resources: {limits: {cpu: 20m, memory: 96Mi}}}]`)))
	must(t, a.Write("some.yaml", manifest(s, "some",
		`containers: [{name: c, image: HELLO, args: [sleep], resources: {requests: {memory: 32Mi}}}]`)))
	awaitPod(t, a, "sure", ready)
	awaitPod(t, a, "some", ready)
	left := memoryTotal(t) - 384*mi
	bytes := func(n int64) string { return fmt.Sprint(n / 4096 * 4096) }
	const limit1, limit2 = "memory/memory.limit_in_bytes", "memory.max"
	for _, c := range []struct{ group, v1, v2, want1, want2 string }{
		{kube, limit1, limit2, bytes(256 * mi), bytes(256 * mi)},
		{kube, "cpu/cpu.shares", "cpu.weight", "512", "20"},
		{kube, "pids/pids.max", "pids.max", "200", "200"},
		{system, "cpu/cpu.shares", "cpu.weight", "307", "12"},
		{system, "pids/pids.max", "pids.max", "max", "max"},
		{root + "/kubepods", limit1, limit2, bytes(left), bytes(left)},
		{root + "/kubepods/burstable", limit1, limit2, bytes(left - 48*mi), bytes(left - 48*mi)},
		{root + "/kubepods/besteffort", limit1, limit2, bytes(left - 64*mi), bytes(left - 64*mi)},
	} {
		groupHolds(t, c.group, c.v1, c.v2, c.want1, c.want2)
	}
	must(t, a.Remove("sure.yaml")) // its reservation is released
	groupHolds(t, root+"/kubepods/burstable", limit1, limit2, bytes(left), bytes(left))
}

// A process that the kernel kills for lack of memory is reported at once, also if its container keeps running.
func TestKillsByTheKernelAreReported(t *testing.T) {
	s := stack.Start(t, stack.Options{})
	a := s.Agent(t)
	must(t, a.Write("p.yaml", manifest(s, "p", `
containers:
- {name: hog, image: HELLO, args: [alloc, "200", --, sleep], resources: {limits: {memory: 32Mi}}}
- {name: quiet, image: HELLO, args: [sleep]}`)))
	awaitPod(t, a, "p", waitsFor("CrashLoopBackOff"))
	await(t, func() error {
		out, errs, _ := playlet(t, "events", "--admin-socket="+a.AdminSocket)
		for line := range strings.Lines(out) {
			if strings.Contains(line, "OOMKilling") && strings.Contains(line, "the container has used up its memory limit") {
				return nil
			}
		}
		return fmt.Errorf("nothing is said of it: %s%s", out, errs)
	})
	if log := a.Log(); !strings.Contains(log, "the kernel killed a process because it was out of memory") {
		t.Errorf("the log says nothing of it")
	}
	if ended := down(t, s, "p", "hog"); ended.Reason != "OOMKilled" {
		t.Errorf("the runtime says %s", ended.Reason)
	}
}
