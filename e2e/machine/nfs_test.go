//go:build e2e

package machine_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/e2e/machine"
	"github.com/playlet-dev/playlet/e2e/parts/install"
)

// Pods mount folders of a real server. The server hangs and returns while they are mounted, at their end and before their start,
// and the agent is killed meanwhile: each end finishes, other pods run, nothing is lost, and nothing stays mounted.
func TestNFS(t *testing.T) { machine.Each(t, testNFS) }

func testNFS(t *testing.T, release install.Release) {
	n := machine.StartNode(t, machine.Options{Release: release})
	n.Must("mkdir -p /srv/nfs/data /etc/exports.d /etc/nfs.conf.d && echo hello >/srv/nfs/data/greeting && " +
		"echo '/srv/nfs 127.0.0.1(rw,no_root_squash,no_subtree_check)' >/etc/exports.d/test.exports && " +
		"printf '[nfsd]\\ngrace-time=10\\nlease-time=10\\n' >/etc/nfs.conf.d/test.conf && systemctl start nfs-server")
	volume := func(path, more string) string {
		return fmt.Sprintf("terminationGracePeriodSeconds: 2\nvolumes: [{name: data, nfs: {server: 127.0.0.1, path: %s%s}}]", path, more)
	}
	const mounted = "volumeMounts: [{name: data, mountPath: /data}]"
	const part = "volumeMounts: [{name: data, mountPath: /data, subPath: part}]"
	const waits = "trap 'exit 0' TERM; sleep 1000000 & wait"
	n.Pod("writer", "cat /data/greeting >/data/copy; "+waits, volume("/srv/nfs/data", ""), mounted)
	n.Pod("reader", "if echo x >/data/written; then exit 1; fi; cat /data/greeting || exit 1; "+waits,
		volume("/srv/nfs/data", ", readOnly: true"), mounted)
	n.Pod("part", "echo x >/data/of-the-part; trap 'cat /data/*; exit 0' TERM; sleep 1000000 & wait", volume("/srv/nfs/data", ""), part)
	n.Pod("other", waits, "terminationGracePeriodSeconds: 2", "")
	n.Enable()
	n.AwaitPods("writer", "reader", "part", "other")
	if got := n.Must("cd /srv/nfs/data && cat copy part/of-the-part && ls"); got != "hello\nx\ncopy\ngreeting\npart" {
		t.Errorf("the server has\n%s", got)
	}
	const mounts = "findmnt -rn -t nfs,nfs4 -o ID,TARGET,SOURCE,OPTIONS | sort || true"
	before, tasks := n.Must(mounts), n.Tasks()
	if strings.Count(before, "127.0.0.1:/srv/nfs/data") < 3 || strings.Count(before, " ro,") != 1 {
		t.Errorf("mounted is\n%s", before)
	}
	kill := func() { n.Must("systemctl kill --kill-who=main -s KILL playlet.service") }

	// The server hangs while its folders are mounted: nothing changes, and other pods come and go.
	drop := "iptables -%s INPUT -p tcp --dport 2049 -j DROP"
	n.Must(fmt.Sprintf(drop, "I"))
	kill()
	n.Pod("late", waits, "terminationGracePeriodSeconds: 2", "")
	n.AwaitPods("late", "other")
	if got := n.Must(mounts); got != before {
		t.Errorf("after the restart there are the mounts\n%s\nand before\n%s", got, before)
	}
	for task := range strings.Lines(tasks) {
		if !strings.Contains(n.Tasks(), strings.TrimSpace(task)) {
			t.Errorf("after the restart this does not run: %s", task)
		}
	}

	// A pod that starts meanwhile waits, and its end kills the program that waits for the server.
	n.Pod("early", waits, volume("/srv/nfs/data", ""), mounted)
	n.Await(commandLimit, "pgrep -a mount.nfs || true", func(out string) bool { return out != "" })
	n.Must("rm /etc/kubernetes/manifests/early.yaml")
	gone(n, "early")
	if got := n.Must("pgrep -a mount.nfs || true"); got != "" {
		t.Errorf("still runs: %s", got)
	}

	// The pods end, and the agent is killed meanwhile.
	n.Must("cd /etc/kubernetes/manifests && rm writer.yaml reader.yaml part.yaml")
	n.Await(commandLimit, "playlet pods", func(table string) bool { return !running(table, "writer-"+n.Name) })
	kill()
	gone(n, "writer", "reader", "part")
	n.Await(commandLimit, mounts, func(out string) bool { return out == "" })
	n.Await(commandLimit, "ls -d /var/lib/kubelet/pods/*/volumes/kubernetes.io~nfs/* 2>/dev/null || true", func(out string) bool { return out == "" })
	n.AwaitPods("late", "other")

	// The server returns: a new pod mounts, and nothing was lost.
	n.Must(fmt.Sprintf(drop, "D"))
	n.Pod("again", "cat /data/copy >/data/second || exit 1; "+waits, volume("/srv/nfs/data", ""), mounted)
	n.AwaitPods("again")
	if got := n.Must("cd /srv/nfs/data && cat second && ls"); got != "hello\ncopy\ngreeting\npart\nsecond" {
		t.Errorf("the server has\n%s", got)
	}

	// Each failure has its cause: no such folder, and no server.
	n.Pod("absent", waits, volume("/srv/nfs/absent", ""), mounted)
	n.Await(commandLimit, "playlet explain absent", func(out string) bool { return strings.Contains(out, "the server does not export the path") })
	n.Must("systemctl stop nfs-server")
	// Another address: the kernel shares the connection of a mount from the same server, and tries it for minutes.
	n.Pod("refused", waits, strings.Replace(volume("/srv/nfs/data", ""), "127.0.0.1", "127.0.0.2", 1), mounted)
	n.Await(commandLimit, "playlet explain refused", func(out string) bool { return strings.Contains(out, "the server refuses connections") })
	n.Must("cd /etc/kubernetes/manifests && rm again.yaml absent.yaml refused.yaml")
	gone(n, "again", "absent", "refused")
	n.Await(commandLimit, mounts, func(out string) bool { return out == "" })
	if got := n.Must("journalctl -u playlet.service | grep -iE 'panicked|panic in|panic while|panic:' || true"); got != "" {
		t.Errorf("the agent's log has\n%s", got)
	}
}

// gone waits until the agent has none of the pods.
func gone(n *machine.Node, names ...string) {
	n.Await(commandLimit, "playlet pods", func(table string) bool {
		for _, name := range names {
			if strings.Contains(table, name+"-"+n.Name) {
				return false
			}
		}
		return true
	})
}

// running reports whether a table of pods has one that runs.
func running(table, pod string) bool {
	return strings.Contains(strings.Join(strings.Fields(table), " "), " "+pod+" 1/1 Running ")
}
