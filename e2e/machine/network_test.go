//go:build e2e

package machine_test

import (
	"testing"

	"github.com/playlet-dev/playlet/cmd/playlet/dev/devimages"
	"github.com/playlet-dev/playlet/e2e/machine"
	"github.com/playlet-dev/playlet/e2e/parts/install"
)

// Two machines of one network reach each other by name, and pull images from a registry of this process.
func TestNetwork(t *testing.T) { machine.Each(t, testNetwork) }

func testNetwork(t *testing.T, release install.Release) {
	network, err := machine.NewNetwork()
	if err != nil {
		t.Fatal(err)
	}
	registry, err := devimages.StartRegistry(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	one := machine.Boot(t, machine.Options{Release: release, Network: network, CPUs: 1, Memory: 1024})
	two := machine.Boot(t, machine.Options{Release: release, Network: network, CPUs: 1, Memory: 1024})
	if one.Must("hostname") != "machine1" || two.Address != "10.77.0.2" {
		t.Errorf("the machines are %q and %q", one.Must("hostname"), two.Address)
	}
	one.Must("systemd-run --unit answer --collect socat TCP-LISTEN:7000,fork,reuseaddr SYSTEM:'echo hello from $(hostname)'")
	got := two.Await(commandLimit, "socat -u TCP:machine1:7000 -", nil)
	if got != "hello from machine1\n" {
		t.Errorf("the other machine answers %q", got)
	}
	if err := two.Mirror(t.Context(), "registry.test", registry.Addr); err != nil {
		t.Fatal(err)
	}
	two.Must("ctr -n k8s.io images pull --hosts-dir /etc/containerd/certs.d registry.test/pause:1")
}
