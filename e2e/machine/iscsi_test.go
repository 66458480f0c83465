//go:build e2e

package machine_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/e2e/kubeimages"
	"github.com/playlet-dev/playlet/e2e/machine"
	"github.com/playlet-dev/playlet/e2e/parts/install"
)

// iscsiTarget makes targets of the kernel's server, with a disk each. The second one asks for a password.
const iscsiTarget = `modprobe -a target_core_mod target_core_file iscsi_target_mod iscsi_tcp && cd /sys/kernel/config/target &&
target() {
  truncate -s 64M /srv/$1.img && mkdir -p core/fileio_0/$1 iscsi/$2/tpgt_1/lun/lun_0 iscsi/$2/tpgt_1/np/127.0.0.1:3260 &&
  echo fd_dev_name=/srv/$1.img,fd_dev_size=67108864 >core/fileio_0/$1/control && echo 1 >core/fileio_0/$1/enable &&
  ln -s $PWD/core/fileio_0/$1 iscsi/$2/tpgt_1/lun/lun_0/$1 && cd iscsi/$2/tpgt_1 &&
  echo 1 >attrib/generate_node_acls && echo 0 >attrib/demo_mode_write_protect && echo $3 >attrib/authentication &&
  echo -n user >auth/userid && echo -n 'pass word' >auth/password && echo 1 >enable && cd ../../..
}
target one ` + iscsiOne + ` 0 && target two ` + iscsiTwo + ` 1`

const iscsiOne, iscsiTwo = "iqn.2026-01.dev.playlet:one", "iqn.2026-01.dev.playlet:two"

// Pods have file systems on disks of a real iSCSI server, one of which asks for a password. The agent is killed while they are
// mounted and while they end: each end finishes, the data stays, and each session ends with its last pod.
func TestISCSI(t *testing.T) { machine.Each(t, testISCSI) }

func testISCSI(t *testing.T, release install.Release) {
	if release != "bookworm" {
		t.Skip("the initiator is Debian 12's")
	}
	archive, err := install.EnsureISCSI(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	n := newKubeadmNode(t, machine.Options{Release: release, Ports: []int{10250}}, "iscsi")
	if err := kubeimages.Push(n.Registry); err != nil {
		t.Fatal(err)
	}
	if err := n.Put(t.Context(), archive, "/root/iscsi.tar"); err != nil {
		t.Fatal(err)
	}
	n.Must(iscsiTarget)
	n.write("/etc/cni/net.d/10-pods.conflist", podNetwork)
	c := newKubeadmControl(t, n, 24*time.Hour)
	c.join(n, "")
	c.approveServing(n.Name)
	c.await(n.node(), func(out string) bool { return out == n.version+" True" })
	c.await("kubectl get serviceaccount default", func(out string) bool { return out != "" })
	c.apply("apiVersion: v1\nkind: Secret\nmetadata: {name: chap}\ntype: kubernetes.io/iscsi-chap\n" +
		"stringData: {node.session.auth.username: user, node.session.auth.password: pass word}\n")
	pod := func(name, target, more, script string) string {
		return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  nodeName: %s
  terminationGracePeriodSeconds: 2
  containers:
  - {name: main, image: %q, command: [sh, -c, %q], volumeMounts: [{name: data, mountPath: /data}]}
  volumes: [{name: data, iscsi: {targetPortal: 127.0.0.1, iqn: %s, lun: 0, fsType: ext4%s}}]
`, name, n.Name, machine.ShellImage, script+"; trap 'exit 0' TERM; sleep 1000000 & wait", target, more)
	}
	has := func(want string) func(string) bool {
		return func(out string) bool { return strings.Contains(out, want) }
	}
	ready := func(name string) {
		t.Helper()
		c.await("kubectl get pod "+name+` -o jsonpath='{.status.conditions[?(@.type=="Ready")].status}'`,
			func(out string) bool { return out == "True" })
	}
	const sessions = "printf %d $(ls /sys/class/iscsi_session 2>/dev/null | wc -l)"
	const mounts = "findmnt -rn -o TARGET,SOURCE | grep /dev/sd || true"
	empty := func(out string) bool { return out == "" }
	kill := func() { n.Must("systemctl kill --kill-who=main -s KILL kubelet.service") }

	// Each lack has its cause: no program, then a target that is not there, then a password that is wrong.
	c.apply(pod("one", iscsiOne, "", "cat /data/greeting || echo hello >/data/greeting; sync"))
	n.Await(commandLimit, "playlet explain one", has("open-iscsi"))
	n.Must("tar -x --keep-directory-symlink -C / -f /root/iscsi.tar && ldconfig && systemctl daemon-reload && " +
		"echo InitiatorName=iqn.2026-01.dev.playlet:machine >/etc/iscsi/initiatorname.iscsi && systemctl start iscsid")
	ready("one")
	c.apply(pod("absent", "iqn.2026-01.dev.playlet:absent", "", "true"))
	n.Await(commandLimit, "playlet explain absent", has("iqn.2026-01.dev.playlet:absent"))
	c.apply(pod("closed", iscsiTwo, "", "true"))
	n.Await(commandLimit, "playlet explain closed", has(iscsiTwo))
	c.screen("kubectl delete pod absent closed")
	c.apply(pod("two", iscsiTwo, ", chapAuthSession: true, secretRef: {name: chap}", "echo secret >/data/greeting; sync"))
	c.apply(pod("shares", iscsiOne, "", "cat /data/greeting"))
	ready("two")
	ready("shares")
	n.Await(commandLimit, sessions, func(out string) bool { return out == "2" }) // iscsid gives the absent target up
	if got := n.Must("journalctl -u kubelet.service"); strings.Contains(got, "pass word") {
		t.Error("the password is in the log")
	}

	// The agent is killed while the volumes are mounted: nothing changes.
	before, tasks := n.Must(mounts), n.Tasks()
	kill()
	c.apply(pod("late", iscsiOne, "", "cat /data/greeting"))
	ready("late")
	c.await("kubectl logs late", has("hello"))
	for task := range strings.Lines(tasks) {
		if !strings.Contains(n.Tasks(), strings.TrimSpace(task)) {
			t.Errorf("after the restart this does not run: %s", task)
		}
	}
	for mount := range strings.Lines(before) {
		if !strings.Contains(n.Must(mounts), strings.TrimSpace(mount)) {
			t.Errorf("after the restart this is not mounted: %s", mount)
		}
	}

	// The session of a target ends with its last pod, and the agent is killed meanwhile.
	c.screen("kubectl delete pod two --wait=false")
	kill()
	c.await("kubectl get pod two --ignore-not-found", empty)
	n.Await(commandLimit, sessions, func(out string) bool { return out == "1" })
	c.screen("kubectl delete pod one shares")
	if got := n.Must(sessions); got != "1" {
		t.Errorf("got %s sessions while pod late has its volume, want 1", got)
	}
	c.screen("kubectl delete pod late")
	n.Await(commandLimit, sessions, func(out string) bool { return out == "0" })
	if got := n.Must(mounts); got != "" {
		t.Errorf("still mounted:\n%s", got)
	}
	if got := n.Must("ls /etc/iscsi/nodes 2>/dev/null || true"); got != "" {
		t.Errorf("records of the initiator are left: %s", got)
	}

	// A later pod has the data.
	c.apply(pod("again", iscsiOne, "", "cat /data/greeting"))
	ready("again")
	c.await("kubectl logs again", has("hello"))
	c.screen("kubectl delete pod again")
	n.Await(commandLimit, sessions, func(out string) bool { return out == "0" })
	if got := n.Must("journalctl -u kubelet.service | grep -iE 'panicked|panic in|panic while|panic:' || true"); got != "" {
		t.Errorf("the agent's log has\n%s", got)
	}
}
