package agent

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ktesting "k8s.io/client-go/testing"

	"github.com/playlet-dev/playlet/config"
	"github.com/playlet-dev/playlet/cri/sim"
)

// A machine may get its first address after the agent has started, or another one later. Each is found and logged once.
func TestAddressesThatComeLater(t *testing.T) {
	log := &logBuffer{}
	node := &config.Node{NodeName: "node", NodeIPs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}}
	a := &nodeAddresses{node: node, log: slog.New(slog.NewTextHandler(log, nil))}
	ctx, stop := context.WithCancel(t.Context())
	looks := 0
	keep(time.Millisecond, a.log, "the node's addresses stay as they were", func(context.Context) error {
		if looks++; looks == 3 {
			stop()
		}
		return a.look(t.Context())
	})(ctx)
	if a.hostIPs() != nil || looks != 3 || strings.Count(log.String(), "loopback") != 1 {
		t.Errorf("before there is one: %v, %d\n%s", a.hostIPs(), looks, log)
	}
	for _, ip := range []string{"203.0.113.5", "203.0.113.6"} {
		a.node = &config.Node{NodeName: ip} // a name that is an address is the node's
		err := errors.Join(a.look(t.Context()), a.look(t.Context()))
		if !slices.Equal(a.hostIPs(), []string{ip}) || err != nil || strings.Count(log.String(), "addresses=["+ip+"]") != 1 {
			t.Errorf("%v, %v\n%s", a.hostIPs(), err, log)
		}
	}
}

// Pods report the addresses that a cloud controller manager set on the Node, and the machine's until it has set any. Without a
// cloud provider they report the machine's, which registration writes.
func TestPodsTellTheAddressesOfTheCloud(t *testing.T) {
	t.Parallel()
	for provider, want := range map[string][]string{"external": {"192.0.2.7", "198.51.100.1"}, "": {"192.0.2.7", "192.0.2.7"}} {
		t.Run(provider, func(t *testing.T) {
			r := newClusterRig(t, sim.Options{}, "--cloud-provider="+provider)
			node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", UID: "n"}}
			if _, err := r.api.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			r.start(nil)
			r.awaitsNode()
			r.tells("before", want[0])
			given, err := r.api.CoreV1().Nodes().Get(t.Context(), "node", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			given.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeExternalIP, Address: "198.51.100.1"},
				{Type: v1.NodeHostName, Address: "node"}}
			if _, err := r.api.CoreV1().Nodes().UpdateStatus(context.Background(), given, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			if provider == "" {
				r.tells("after", want[1])
				return
			}
			r.eventually("the Node's addresses are seen",
				func() bool { return slices.Contains(r.agent.cluster.registered.Load().Addresses, "198.51.100.1") })
			r.tells("after", want[1])

			// A restarted agent that has not read the Node yet leaves the pod's reported address unchanged.
			r.stop()
			r.api.PrependReactor("list", "nodes", func(ktesting.Action) (bool, runtime.Object, error) {
				return true, nil,
					errors.New("not now")
			})
			r.start(nil)
			r.untilPrinted([]string{"pods"}, "after", "Running")
			r.eventually("its container runs", func() bool { // it may not have been started before the restart
				c := r.runtime.Snapshot().Container("after", "main")
				return c != nil && c.Running()
			})
			if err := r.runtime.Exit(r.runtime.Snapshot().Sandbox("after").UID, "main", 1, "Error"); err != nil {
				t.Fatal(err)
			}
			r.eventually("the pod's container is told to have restarted", func() bool {
				s := r.pod("after").Status.ContainerStatuses
				return len(s) > 0 && s[0].RestartCount == 1
			})
			if got := r.pod("after").Status; got.HostIP != want[1] {
				t.Errorf("it is on %s now", got.HostIP)
			}
		})
	}
}

// tells waits until a new pod reports this address of the node.
func (r *clusterRig) tells(name, want string) {
	r.t.Helper()
	r.binds(manifest(name, "Always", nil, []string{"main forever"}))
	r.eventually(name+" tells "+want, func() bool { return r.pod(name).Status.HostIP == want })
}

// A standalone node has no registration to look for its addresses: the process does.
func TestAStandaloneNodeLooksForItsAddresses(t *testing.T) {
	r := newRig(t, sim.Options{}, "--hostname-override=203.0.113.5", "--node-ip=", "--node-status-update-frequency=5ms")
	a := r.prepare()
	a.machine.addresses.found.Store(nil)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.run(ctx, nil) }()
	r.eventually("the address is found", func() bool { return slices.Equal(a.machine.addresses.hostIPs(), []string{"203.0.113.5"}) })
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
