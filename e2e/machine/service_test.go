//go:build e2e

package machine_test

import (
	"maps"
	"strconv"
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/e2e/machine"
	"github.com/playlet-dev/playlet/e2e/parts/install"
)

// quiet is a script of a container that goes on until its signal.
const quiet = "trap 'exit 0' TERM; sleep 1000000 & wait"

// hungShim kills containerd while the shim of a pod is stopped. The next containerd ends that pod's tasks after five seconds.
const hungShim = "kill -STOP $(pgrep -o containerd-shim) && systemctl kill --kill-whom=main --signal=SIGKILL containerd.service && sleep 6"

// The agent and the daemons around it are killed and restarted, the package is upgraded and removed, and the machine reboots.
// Pods go on: the same containers, without a restart, until the reboot. The exception are the tasks that a new containerd cannot
// read: a shim has five seconds to answer it, and a task ten. They are replaced once, as under the kubelet, which knows no more.
func TestService(t *testing.T) { machine.Each(t, testService) }

func testService(t *testing.T, release install.Release) {
	n := machine.StartNode(t, machine.Options{Release: release})
	n.Pod("one", quiet, "", "")
	n.Pod("two", quiet, "", "resources: {requests: {cpu: 50m, memory: 32Mi}}")
	n.Enable()
	n.AwaitPods("one", "two")
	before, restarts := n.Tasks(), restartsOf(n)
	undisturbed := func(t *testing.T) {
		t.Helper()
		n.AwaitPods("one", "two")
		if now := n.Tasks(); now != before {
			missing, lost := without(before, now), unread(n)
			if without(missing, lost) != "" {
				t.Fatalf("there runs\n%s\nand before\n%s\nand containerd could not read\n%s", now, before, lost)
			}
			t.Logf("containerd could not read these tasks, and they are replaced:\n%s", missing)
			n.Await(commandLimit, "ctr -n k8s.io tasks list", func(out string) bool {
				return strings.Count(out, "RUNNING") == strings.Count(before, "RUNNING")
			})
			n.AwaitPods("one", "two")
			before, restarts = n.Tasks(), restartsOf(n)
		}
		if now := restartsOf(n); !maps.Equal(now, restarts) {
			t.Errorf("containers were restarted %v times, and before %v", now, restarts)
		}
	}
	t.Run("unit", func(t *testing.T) {
		for property, want := range map[string]string{"Type": "notify", "WatchdogUSec": "1min", "LimitNOFILE": "1048576",
			"OOMPolicy": "continue", "OOMScoreAdjust": "-999", "Slice": "system.slice", "KillMode": "process"} {
			if got := n.Must("systemctl show --value -p " + property + " playlet.service"); got != want {
				t.Errorf("%s is %q, want %q", property, got, want)
			}
		}
		if got := n.Must("cat /proc/$(systemctl show --value -p MainPID playlet.service)/oom_score_adj"); got != "-999" {
			t.Errorf("oom_score_adj is %s", got)
		}
	})
	for _, fault := range []string{
		"systemctl kill --signal=SIGKILL playlet.service && sleep 3",
		"systemctl restart playlet.service",
		"systemctl daemon-reload",
		"systemctl daemon-reexec",
		"systemctl restart systemd-journald.service",
		"systemctl restart containerd.service",
		"systemctl kill --kill-whom=main --signal=SIGKILL containerd.service && sleep 6",
		hungShim,
		"systemctl restart dbus.service",
		"systemctl restart systemd-logind.service",
		"dpkg -i " + machine.DebPath(machine.Upgrade) + " 2>&1",
	} {
		t.Run(fault, func(t *testing.T) {
			n.Must(fault)
			n.Await(commandLimit, "systemctl is-active playlet.service", nil)
			if fault == hungShim && without(before, n.Tasks()) == "" { // Tasks waits for the new containerd
				t.Error("containerd reads the tasks of a stopped shim")
			}
			undisturbed(t)
			n.Await(commandLimit, "curl -fsS http://127.0.0.1:10248/healthz", nil)
		})
	}
	t.Run("journal", func(t *testing.T) {
		n.Manifest("broken", "apiVersion: v1\nkind: Pod\nmetadata: {name: broken}\nspec: {containers: []}\n")
		n.Await(commandLimit, "journalctl -q -p warning -u playlet.service -o cat", func(out string) bool {
			return strings.Contains(out, "broken.yaml")
		})
		n.Must("rm /etc/kubernetes/manifests/broken.yaml")
		if all, few := n.Must("journalctl -q -u playlet.service | wc -l"), n.Must("journalctl -q -p warning -u playlet.service | wc -l"); all == few {
			t.Errorf("all of %s lines are warnings", all)
		}
		if out := n.Must("journalctl -q -u playlet.service -o cat | grep -E '^<[0-7]>' || true"); out != "" {
			t.Errorf("the journal has prefixes in its text:\n%s", out)
		}
	})
	t.Run("reboot", func(t *testing.T) {
		if err := n.Reboot(t.Context()); err != nil {
			t.Fatal(err)
		}
		n.Await(commandLimit, "systemctl is-active playlet.service", nil)
		n.AwaitPods("one", "two")
		for name := range restarts { // the reboot ended all containers
			restarts[name]++
		}
		if before = n.Tasks(); strings.Count(before, "\n") != 3 { // two sandboxes, two containers
			t.Errorf("after a reboot there runs\n%s", before)
		}
	})
	t.Run("removal", func(t *testing.T) {
		n.Must("dpkg -r playlet")
		if state, err := n.Run(t.Context(), "systemctl is-active playlet.service"); err != nil || state.Code == 0 {
			t.Errorf("after the removal the unit is %+v, %v", state, err)
		}
		if now := n.Tasks(); now != before {
			t.Errorf("after the removal there runs\n%s\nand before\n%s", now, before)
		}
		n.Must("dpkg -i " + machine.DebPath(machine.Version))
		n.Enable()
		undisturbed(t)
	})
}

// restartsOf returns the number of restarts by pod.
func restartsOf(n *machine.Node) map[string]int {
	restarts := map[string]int{}
	for line := range strings.Lines(n.AwaitPods("one", "two")) {
		if fields := strings.Fields(line); len(fields) > 4 {
			if count, err := strconv.Atoi(fields[4]); err == nil {
				restarts[fields[1]] = count
			}
		}
	}
	return restarts
}

// unread returns the lines of containerd's journal about tasks that it could not read when it started.
func unread(n *machine.Node) string {
	return n.Must("journalctl -q -u containerd.service -o cat | grep -E 'ailed to load (container status|sandbox status|shim)' || true")
}

// without returns the lines of tasks with an ID that text lacks.
func without(tasks, text string) string {
	var out strings.Builder
	for line := range strings.Lines(tasks) {
		if id, _, _ := strings.Cut(line, " "); !strings.Contains(text, strings.TrimSpace(id)) {
			out.WriteString(line)
		}
	}
	return out.String()
}
