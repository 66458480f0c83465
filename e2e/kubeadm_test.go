//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/playlet-dev/playlet/config/systemd"
	"github.com/playlet-dev/playlet/e2e/isolate"
	"github.com/playlet-dev/playlet/e2e/kubeimages"
	"github.com/playlet-dev/playlet/e2e/parts/install"
	"github.com/playlet-dev/playlet/e2e/stack"
)

// kubeadmConfig is for a host with cgroup v1, without the right to set the kernel's limits of connections.
const kubeadmConfig = `apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {advertiseAddress: 192.168.77.1}
nodeRegistration:
  criSocket: CRI
  ignorePreflightErrors: [SystemVerification]
  kubeletExtraArgs: [{name: node-ip, value: 192.168.77.1}]
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: v1.36.3
networking: {podSubnet: 10.244.0.0/16}
---
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
cgroupDriver: cgroupfs
cgroupRoot: GROUPS
evictionHard: {memory.available: 1Mi}
oomScoreAdj: 0
---
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
conntrack: {maxPerCore: 0}
`

// kubeadmSystemctl starts and stops the kubelet's service, as its unit and drop-ins have it.
const kubeadmSystemctl = `#!/bin/sh
echo "$@" >>DIR/systemctl.log
unit=/etc/systemd/system/kubelet.service
alive() { kill -0 "$(cat DIR/pid 2>/dev/null)" 2>/dev/null; }
stop() { alive || return 0; kill -TERM "$(cat DIR/pid)"; while alive; do sleep 0.1; done; }
start() {
	for file in $unit $unit.d/*; do
		eval "$(sed -n 's/^Environment=/export /p' $file)"
	done
	. /var/lib/kubelet/kubeadm-flags.env
	line=$(cat $unit $unit.d/* | sed -n 's/^ExecStart=\(.\)/\1/p' | tail -n 1)
	setsid sh -c 'echo $$ >DIR/pid; exec "$@"' sh $(eval echo "$line") >>DIR/log 2>&1 </dev/null &
}
case "$1" in
status) echo "Loaded: loaded" ;;
is-enabled | daemon-reload) ;;
is-active) alive && echo active ;;
stop) stop ;;
start | restart) stop; start ;;
try-restart) if alive; then stop; start; fi ;;
*) exit 1 ;;
esac
`

// kubeadmNode is this host as a node that kubeadm sets up.
type kubeadmNode struct {
	t   *testing.T
	s   *stack.Stack
	dir string
	env []string
}

func newKubeadmNode(t *testing.T) *kubeadmNode {
	t.Helper()
	parts, err := install.LocateKubeadm()
	must(t, err)
	cluster, err := install.LocateCluster()
	must(t, err)
	s := stack.Start(t, stack.Options{Mirrored: []string{"registry.k8s.io"}})
	must(t, kubeimages.Push(s.Registry))
	n := &kubeadmNode{t: t, s: s, dir: t.TempDir()}
	n.env = append(os.Environ(), "KUBECONFIG=/etc/kubernetes/admin.conf", "PATH="+strings.Join([]string{n.dir, filepath.Dir(parts.Kubeadm),
		filepath.Dir(cluster.Kubectl), os.Getenv("PATH")}, ":"))
	upper, work := filepath.Join(n.dir, "upper"), filepath.Join(n.dir, "work")
	must(t, errors.Join(os.Mkdir(upper, 0o755), os.Mkdir(work, 0o755)))
	must(t, unix.Mount("overlay", "/etc", "overlay", 0, "lowerdir=/etc,upperdir="+upper+",workdir="+work))
	t.Cleanup(func() { must(t, unix.Unmount("/etc", unix.MNT_DETACH)) })
	must(t, os.MkdirAll("/run/systemd/system", 0o755))
	unit := strings.ReplaceAll(systemd.ForKubeadm(), "/usr/bin/kubelet", n.dir+"/kubelet")
	must(t, errors.Join(os.MkdirAll("/etc/systemd/system/kubelet.service.d", 0o755),
		os.WriteFile("/etc/systemd/system/kubelet.service", []byte(unit), 0o644),
		os.WriteFile("/etc/systemd/system/kubelet.service.d/10-none.conf", nil, 0o644),
		os.WriteFile(n.dir+"/systemctl", []byte(strings.ReplaceAll(kubeadmSystemctl, "DIR", n.dir)), 0o755),
		os.WriteFile(n.dir+"/config.yaml", []byte(strings.NewReplacer("CRI", "unix://"+s.Socket(), "GROUPS", s.CgroupRoot()).
			Replace(kubeadmConfig)), 0o644)))
	t.Cleanup(func() {
		n.run("systemctl stop kubelet")
		if t.Failed() {
			log, _ := os.ReadFile(n.dir + "/log")
			t.Logf("the log of the kubelet's service ends with\n%s", log[max(0, len(log)-8000):])
		}
	})
	return n
}

// link makes a program the node's kubelet.
func (n *kubeadmNode) link(program string) {
	n.t.Helper()
	_ = os.Remove(n.dir + "/kubelet") // there is none at first
	must(n.t, os.Symlink(program, n.dir+"/kubelet"))
}

func (n *kubeadmNode) output(command string) (string, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(n.t.Context()), 4*waitLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", command)
	cmd.Env, cmd.WaitDelay = n.env, time.Second // the service has the pipe
	out, err := cmd.CombinedOutput()
	if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return string(out), fmt.Errorf("%s: %w\n%s", command, err, out)
	}
	return string(out), nil
}

func (n *kubeadmNode) run(command string) string {
	n.t.Helper()
	out, err := n.output(command)
	must(n.t, err)
	return out
}

// await repeats a command until it succeeds and its output has all of these.
func (n *kubeadmNode) await(command string, all ...string) string {
	n.t.Helper()
	var out string
	await(n.t, func() (err error) {
		if out, err = n.output(command); err != nil {
			return err
		}
		for _, one := range all {
			if !strings.Contains(out, one) {
				return fmt.Errorf("%s: no %q in\n%s", command, one, out)
			}
		}
		return nil
	})
	return out
}

// awaitPods waits until all pods are ready, and at least so many exist.
func (n *kubeadmNode) awaitPods(least int) {
	n.t.Helper()
	await(n.t, func() error {
		out, err := n.output(`kubectl get pods -A -o jsonpath='{range .items[*]}{.metadata.name} {.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}'`)
		if err != nil {
			return err
		}
		if lines := strings.Count(out, "\n"); lines < least || strings.Count(out, " True\n") != lines {
			return fmt.Errorf("not all of %d pods are ready:\n%s", least, out)
		}
		return nil
	})
}

// awaitAgent waits until the node is ready with an agent of this kind.
func (n *kubeadmNode) awaitAgent(version string) {
	n.t.Helper()
	n.await("kubectl get node node0 -o jsonpath='{.status.nodeInfo.kubeletVersion}; "+
		`{.status.conditions[?(@.type=="Ready")].status}'`, version, "; True")
}

// reported has all pods with their containers and restarts, as the API server has them.
func (n *kubeadmNode) reported() string {
	return n.run(`kubectl get pods -A -o jsonpath='{range .items[*]}{.metadata.uid} {.metadata.name} ` +
		`{range .status.containerStatuses[*]}{.containerID}={.restartCount} {end}{"\n"}{end}'`)
}

// undisturbed runs commands, and compares the pods with the earlier ones.
func (n *kubeadmNode) undisturbed(version string, commands ...string) {
	n.t.Helper()
	before, was := containersByID(n.t, n.s), n.reported()
	for _, command := range commands {
		n.run(command)
	}
	n.awaitAgent(version)
	n.awaitPods(8)
	untouched(n.t, n.s, before)
	if is := n.reported(); is != was {
		n.t.Errorf("after %q the API server has\n%s\nand had\n%s", commands, is, was)
	}
}

const shellPod = `apiVersion: v1
kind: Pod
metadata: {name: shell}
spec:
  tolerations: [{operator: Exists}]
  terminationGracePeriodSeconds: 1
  containers: [{name: shell, image: "registry.k8s.io/shell:1", command: [sh, -c, "echo started; exec sleep 1000000"]}]
`

// An unmodified kubeadm makes a cluster of this node with the agent as /usr/bin/kubelet: preflight, the control plane as static
// pods, kube-proxy and CoreDNS, certificates, upgrade and reset. A real kubelet then has the node, which is taken over by
// install, and given back.
func TestKubeadm(t *testing.T) {
	n := newKubeadmNode(t)
	ours := stack.Binary()
	kubelet, err := stack.Kubelet()
	must(t, err)
	const oursVersion, version = "v1.36.3+playlet", "v1.36.3;"
	n.link(ours)
	n.run("kubeadm init --config " + n.dir + "/config.yaml --node-name " + isolate.HostName)
	must(t, os.WriteFile(n.dir+"/pod.yaml", []byte(shellPod), 0o644))
	n.await("kubectl apply -f " + n.dir + "/pod.yaml") // its service account is made a little later
	n.awaitPods(8)                                     // four of the control plane, kube-proxy, two of CoreDNS, and this one
	n.await("kubectl exec shell -- nslookup kubernetes.default.svc.cluster.local", "10.96.0.1")
	n.await("kubectl logs shell", "started")
	n.await("kubectl get --raw /api/v1/nodes/node0/proxy/stats/summary", `"podRef"`, `"workingSetBytes"`)
	n.run("grep -q 'client-certificate: /var/lib/kubelet/pki/kubelet-client-current.pem' /etc/kubernetes/kubelet.conf && " +
		"openssl x509 -noout -subject -in /var/lib/kubelet/pki/kubelet-client-current.pem | grep -q system:node:node0")
	n.run("kubeadm certs renew all && kubeadm certs check-expiration")
	n.undisturbed(oursVersion, "kubeadm upgrade node --certificate-renewal=false --ignore-preflight-errors=SystemVerification", "systemctl restart kubelet")

	n.link(kubelet)
	n.undisturbed(version, "systemctl restart kubelet")
	binary := n.dir + "/playlet"
	n.undisturbed(oursVersion, ours+" install --replace-kubelet --binary="+binary)
	n.undisturbed(version, binary+" uninstall --binary="+binary)
	n.run("kubectl delete pod shell --timeout=3m")

	n.link(ours)
	n.run("systemctl restart kubelet")
	n.awaitAgent(oursVersion)
	n.run("kubeadm reset --force --cri-socket=unix://" + n.s.Socket())
	if left := containersByID(t, n.s); len(left) > 0 {
		t.Errorf("after a reset there are %v", left)
	}
	if log := n.run("cat " + n.dir + "/systemctl.log"); !strings.Contains(log, "stop kubelet") {
		t.Errorf("reset does not stop the kubelet; systemctl was called with\n%s", log)
	}
}
