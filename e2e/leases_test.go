//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"

	"github.com/playlet-dev/playlet/e2e/stack"
)

// A runtime that has lost its state leaves the addresses of its sandboxes reserved: the next agent frees them, and leaves other
// users' addresses of the same network alone, whatever their names. That takes several of the agent's audits, minutes of waiting:
// it runs with PLAYLET_SLOW (task test-slow).
func TestAddressesThatTheRuntimeHasLost(t *testing.T) {
	if os.Getenv("PLAYLET_SLOW") == "" {
		t.Skip("it waits for audits for minutes: task test-slow runs it; what it decides is in actors/runtime's and cni's tests")
	}
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		a := s.Agent(t)
		must(t, a.Write("web.yaml", manifest(s, "web", "containers: [{name: c, image: HELLO}]")))
		awaitPod(t, a, "web", ready)
		lost := up(t, s, "web", "c").PodSandboxId
		keeps := func(id string) func() error {
			return func() error {
				text, err := os.ReadFile(filepath.Join(a.RootDir, "playlet", "sandboxes.json"))
				if err != nil || !strings.Contains(string(text), id) {
					return fmt.Errorf("%s is not kept as seen: %s, %w", id, text, err)
				}
				return nil
			}
		}
		await(t, keeps(lost))
		stranger := strings.Repeat("5", 64)
		detach := attach(t, s, stranger)
		if got := leasesOf(t, s, lost, stranger); got != 2 {
			t.Fatalf("of both there are %d leases", got)
		}
		must(t, s.Reboot())
		must(t, s.LoseRuntime())
		must(t, s.StartRuntime())
		must(t, a.Start())
		awaitPod(t, a, "web", ready)
		now := up(t, s, "web", "c").PodSandboxId
		await(t, keeps(now)) // the lost one is missed from then on
		await(t, func() error {
			if leasesOf(t, s, lost) > 0 {
				return errors.New("its address is still reserved")
			}
			return nil
		})
		if leasesOf(t, s, lost) != 0 || leasesOf(t, s, stranger) != 1 || leasesOf(t, s, now) != 1 {
			t.Errorf("leases: of the lost one %d, of the stranger %d, of the new one %d", leasesOf(t, s, lost),
				leasesOf(t, s, stranger), leasesOf(t, s, now))
		}
		detach()
	})
}

// leasesOf counts the addresses that are reserved for these containers.
func leasesOf(t *testing.T, s *stack.Stack, ids ...string) (n int) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(s.LeaseDir(), "*", "*.*.*.*"))
	must(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		must(t, err)
		for _, id := range ids {
			if strings.HasPrefix(string(text), id) {
				n++
			}
		}
	}
	return n
}

// attach attaches a foreign network namespace to the pods' network, as a runtime does it.
func attach(t *testing.T, s *stack.Stack, id string) (detach func()) {
	t.Helper()
	run := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			t.Fatalf("ip %v: %v: %s", args, err, out)
		}
	}
	run("netns", "add", "stranger")
	conf, err := libcni.NetworkConfFromFile(filepath.Join(s.CNIConfDir(), "10-playlet.conflist"))
	must(t, err)
	plugins := libcni.NewCNIConfigWithCacheDir([]string{s.CNIBinDir()}, "/var/lib/cni", nil)
	args := &libcni.RuntimeConf{ContainerID: id, NetNS: "/run/netns/stranger", IfName: "eth0", Args: [][2]string{
		{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", "default"}, {"K8S_POD_NAME", "web"}, {"K8S_POD_INFRA_CONTAINER_ID", id},
	}}
	_, err = plugins.AddNetworkList(t.Context(), conf, args)
	must(t, err)
	t.Cleanup(func() { run("netns", "del", "stranger") })
	return func() { must(t, plugins.DelNetworkList(t.Context(), conf, args)) }
}
