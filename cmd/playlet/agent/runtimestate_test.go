package agent

import (
	"net"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/cri/sim"
)

// The cgroup driver is the one that the runtime reports, or else the configured one (KEP-4033).
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

// "playlet pods" and "playlet explain node" name a runtime that is too old for CRI v1, with a remedy.
func TestARuntimeThatIsTooOld(t *testing.T) {
	r := newRig(t, sim.Options{})
	socket := filepath.Join(r.dir, "old.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	old := grpc.NewServer() // it answers, and knows no such service
	served := make(chan error, 1)
	go func() { served <- old.Serve(listener) }()
	t.Cleanup(func() {
		old.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	r.flags = append(r.flags, "--container-runtime-endpoint=unix://"+socket)
	r.start(nil)
	r.write("web.yaml", manifest("web", "Always", nil, []string{"app web:1"}))
	const why = "it does not offer CRI v1 (containerd does from 1.6 on, unless its CRI plugin is disabled)"
	r.untilPrinted([]string{"pods"}, "web-node", "the container runtime at unix://"+socket+" is not ready", why)
	r.untilPrinted([]string{"explain", "node"}, why)
	r.untilPrinted([]string{"explain", "web"}, why)
}

// The features of each runtime handler are reported by its name. A feature that is not reported is unsupported.
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
