//go:build e2e

package machine_test

import (
	"bytes"
	"encoding/pem"
	"slices"
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/e2e/kubeimages"
	"github.com/playlet-dev/playlet/e2e/machine"
	"github.com/playlet-dev/playlet/e2e/parts/install"
)

// kubeadmInit has keys that are cheap to use, and a control plane that neither writes leases nor loses them: the processor is
// emulated.
const kubeadmInit = `apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
` + kubeadmTimeouts + `---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: ` + kubeimages.Version + `
encryptionAlgorithm: ECDSA-P256
controllerManager: {extraArgs: [{name: leader-elect, value: "false"}]}
scheduler: {extraArgs: [{name: leader-elect, value: "false"}]}
etcd:
  local:
    extraArgs: [{name: heartbeat-interval, value: "1000"}, {name: election-timeout, value: "10000"}, {name: unsafe-no-fsync, value: "true"}]
`

// controlPlane are the static pods of kubeadm.
var controlPlane = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"}

// upgraded is the version of an upgrade, whose programs are those of kubeimages.Version.
const upgraded = "v1.36.4"

// kubeadmUpgrade forgives kubeadm's own pod, for which it gives an emulated machine a minute.
const kubeadmUpgrade = `apiVersion: kubeadm.k8s.io/v1beta4
kind: UpgradeConfiguration
apply: {kubernetesVersion: ` + upgraded + `, forceUpgrade: true, ignorePreflightErrors: [CreateJob]}
` + kubeadmTimeouts

// An unmodified kubeadm makes a cluster of a Debian machine on which the agent's package is installed: preflight without an
// exception, the control plane as static pods, a Node that is ready, renewed certificates, an upgrade, and a reset. The real
// kubelet has the node in between. The packages of the agent and of a kubelet take and return /usr/bin/kubelet.
func TestKubeadmInit(t *testing.T) { machine.Each(t, testKubeadmInit) }

func testKubeadmInit(t *testing.T, release install.Release) {
	n := newKubeadmNode(t, machine.Options{Release: release}, "kubeadm-init")
	if err := kubeimages.Push(n.Registry); err != nil {
		t.Fatal(err)
	}
	if err := n.Mirror(t.Context(), "registry.k8s.io", n.Registry.Addr); err != nil {
		t.Fatal(err)
	}
	n.write("/etc/kubeadm.yaml", kubeadmInit)
	n.screen("update-alternatives --list kubelet")
	n.screen("systemctl enable kubelet.service")
	n.screen("cat /etc/kubeadm.yaml")
	// The addons are a phase of their own: kubeadm does not repeat a request that the server did not answer within ten seconds.
	n.screen("kubeadm init --config /etc/kubeadm.yaml --skip-phases addon")
	n.Must("mkdir -p /root/.kube && cp /etc/kubernetes/admin.conf /root/.kube/config")
	const addons = "kubeadm init phase addon all --config /etc/kubeadm.yaml"
	n.log.begin(n.Name, addons)
	n.log.add(n.Await(commandLimit, addons, nil))
	first := n.controlPlane(nil)
	node := n.node()
	n.Await(commandLimit, node, func(out string) bool { return out == n.version+" False" }) // without a CNI configuration
	n.write("/etc/cni/net.d/10-pods.conflist", podNetwork)
	n.Await(commandLimit, node, func(out string) bool { return out == n.version+" True" })
	n.screen("kubectl get nodes -o wide")
	n.screen("kubectl get pods -A -o wide")
	n.Must("grep -q 'client-certificate: /var/lib/kubelet/pki/kubelet-client-current.pem' /etc/kubernetes/kubelet.conf")
	n.screen("systemctl status --no-pager --lines=0 kubelet.service")

	n.packKubelet()
	n.handOver(func(version string, commands ...string) {
		t.Helper()
		n.undisturbed(func(command string, good func(string) bool) string { return n.Await(commandLimit, command, good) }, version, commands...)
		now := n.controlPlane(nil)
		for pod, id := range now {
			if id != first[pod] && !n.failed(pod, first[pod]) {
				t.Errorf("after %q pod %s has container %s, and before %s", commands, pod, id, first[pod])
			}
		}
		first = now
	})

	// A manifest that is moved away and back restarts its pod, as kubeadm and its users need it.
	n.screen("kubeadm certs renew all")
	n.screen("mkdir /root/apart && mv /etc/kubernetes/manifests/*.yaml /root/apart/ && mv /root/apart/*.yaml /etc/kubernetes/manifests/")
	renewed := n.controlPlane(first)
	n.Must("cp /etc/kubernetes/admin.conf /root/.kube/config")
	n.servesRenewed()
	n.write("/etc/kubeadm-upgrade.yaml", kubeadmUpgrade)
	for _, name := range controlPlane[1:] {
		n.Must("ctr -n k8s.io images tag registry.k8s.io/" + name + ":" + kubeimages.Version + " registry.k8s.io/" + name + ":" + upgraded)
	}
	n.screen("cat /etc/kubeadm-upgrade.yaml")
	n.screen("kubeadm upgrade apply --config /etc/kubeadm-upgrade.yaml --skip-phases addon")
	n.controlPlane(renewed)
	n.servesRenewed()
	images := n.screen(`kubectl get pods -n kube-system -l tier=control-plane -o jsonpath='{range .items[*]}{.spec.containers[0].image}{"\n"}{end}'`)
	if got := strings.Count(images+"\n", ":"+upgraded+"\n"); got != len(controlPlane)-1 {
		t.Errorf("after the upgrade run\n%s", images)
	}
	n.Await(commandLimit, node, func(out string) bool { return out == n.version+" True" })
	n.screen("kubectl get pods -A -o wide")
	n.reset()

	t.Run("packages", func(t *testing.T) {
		is := func(version string) {
			t.Helper()
			if got := n.screen("kubelet --version"); got != "Kubernetes "+version {
				t.Errorf("the kubelet is %q, want %s", got, version)
			}
		}
		n.screen("dpkg -i /root/kubelet.deb")
		is(kubeimages.Version)
		n.screen("dpkg -r kubelet")
		is(n.version)
		n.screen("dpkg -i /root/kubelet.deb")
		n.screen("dpkg -r playlet")
		is(kubeimages.Version)
		n.screen("systemctl cat kubelet.service")
		n.screen("dpkg -r kubelet")
		n.fails("test -e /usr/bin/kubelet", "update-alternatives --list kubelet", "systemctl cat kubelet.service")
	})
}

// controlPlane waits until the pods of the control plane are ready, with other containers than those of before, and returns the
// containers' IDs by pod.
func (n *kubeadmNode) controlPlane(before map[string]string) map[string]string {
	n.t.Helper()
	var ids map[string]string
	n.Await(commandLimit, `kubectl get pods -n kube-system -l tier=control-plane -o jsonpath='{range .items[*]}{.metadata.name} `+
		`{.status.containerStatuses[0].containerID} {.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}'`, func(out string) bool {
		ids = map[string]string{}
		for line := range strings.Lines(out) {
			if fields := strings.Fields(line); len(fields) == 3 && fields[2] == "True" && before[fields[0]] != fields[1] {
				ids[fields[0]] = fields[1]
			}
		}
		return len(ids) == len(controlPlane)
	})
	return ids
}

// failed reports whether the previous container of a pod ended itself after a failure: kube-apiserver does when a starved machine
// lets its first requests to etcd time out. A container that an agent stops has another exit code.
func (n *kubeadmNode) failed(pod, id string) bool {
	n.t.Helper()
	const ended = "{.status.containerStatuses[0].lastState.terminated."
	out := n.Await(commandLimit, "kubectl get pods -n kube-system "+pod+" -o jsonpath='"+ended+"containerID} "+ended+"exitCode}'",
		func(out string) bool { return strings.HasPrefix(out, "containerd://") })
	return slices.Contains([]string{id + " 1", id + " 255"}, out)
}

// servesRenewed checks that the servers show the certificates of their files.
func (n *kubeadmNode) servesRenewed() {
	n.t.Helper()
	for port, file := range map[string]string{"6443": "apiserver.crt", "2379": "etcd/server.crt"} {
		text, err := n.Get(n.t.Context(), "/etc/kubernetes/pki/"+file)
		if err != nil {
			n.t.Fatal(err)
		}
		shown, err := n.served(port)
		if block, _ := pem.Decode([]byte(text)); err != nil || block == nil || !bytes.Equal(block.Bytes, shown.Raw) {
			n.t.Errorf("port %s does not show the certificate of %s, %v", port, file, err)
		}
	}
}

// podNetwork is a CNI configuration of one node.
const podNetwork = `{"cniVersion": "1.0.0", "name": "pods", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": true, "hairpinMode": true,
   "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
`
