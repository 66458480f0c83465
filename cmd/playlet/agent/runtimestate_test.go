package agent

import (
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/cri/sim"
)

// The cgroup driver is the runtime's own word, or, where it does not tell, that of the configuration (KEP-4033).
func TestTheCgroupDriverIsTheRuntimes(t *testing.T) {
	for _, c := range []struct {
		name    string
		opts    sim.Options
		flag    string
		systemd bool
	}{
		{"systemd, whatever is configured", sim.Options{CgroupDriver: runtimeapi.CgroupDriver_SYSTEMD}, "cgroupfs", true},
		{"cgroupfs, whatever is configured", sim.Options{CgroupDriver: runtimeapi.CgroupDriver_CGROUPFS}, "systemd", false},
		{"an old runtime, systemd", sim.Options{Old: true}, "systemd", true},
		{"an old runtime, cgroupfs", sim.Options{Old: true}, "cgroupfs", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.opts.Preload = []string{"web:1"}
			r := newRig(t, c.opts, "--cgroup-driver="+c.flag)
			r.start(nil)
			r.write("web.yaml", manifest("web", "Always", nil, []string{"app web:1"}))
			r.await("web", func(s sim.Snapshot) bool { return isUp(s, "web-node") })
			if got := r.agent.host.Can().SystemdCgroups; got != c.systemd {
				t.Errorf("systemd: %v", got)
			}
		})
	}
}

// What each of the runtime's handlers can do is told by its name, and what is not told of cannot be done.
func TestEachHandlerCanWhatItSays(t *testing.T) {
	handler := func(name string, recursive bool) *runtimeapi.RuntimeHandler {
		return &runtimeapi.RuntimeHandler{Name: name,
			Features: &runtimeapi.RuntimeHandlerFeatures{RecursiveReadOnlyMounts: recursive}}
	}
	r := newRig(t, sim.Options{Preload: []string{"web:1"},
		Handlers: []*runtimeapi.RuntimeHandler{handler("", false), handler("second", true)}})
	r.start(nil)
	r.write("web.yaml", manifest("web", "Always", nil, []string{"app web:1"}))
	r.await("web", func(s sim.Snapshot) bool { return isUp(s, "web-node") })
	if can := r.agent.host.Can().RecursiveReadOnlyMounts; can[""] || !can["second"] || can["third"] {
		t.Errorf("able are %v", can)
	}
}
