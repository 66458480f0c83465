//go:build e2e

package machine_test

import (
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

// An unmodified kubeadm makes a cluster of a Debian machine on which the agent's package is installed: preflight without an
// exception, the control plane as static pods, a Node that is ready, and a reset. The packages of the agent and of a kubelet take
// and return /usr/bin/kubelet.
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
	n.Await(commandLimit, `kubectl get pods -n kube-system -o jsonpath='{range .items[*]}{.metadata.name} `+
		`{.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}'`, func(out string) bool {
		for _, name := range controlPlane {
			if !strings.Contains(out, name+"-"+n.Name+" True\n") {
				return false
			}
		}
		return true
	})
	node := `kubectl get node ` + n.Name + ` -o jsonpath='{.status.nodeInfo.kubeletVersion} {.status.conditions[?(@.type=="Ready")].status}'`
	n.Await(commandLimit, node, func(out string) bool { return out == n.version+" False" }) // without a CNI configuration
	n.write("/etc/cni/net.d/10-pods.conflist", podNetwork)
	n.Await(commandLimit, node, func(out string) bool { return out == n.version+" True" })
	n.screen("kubectl get nodes -o wide")
	n.screen("kubectl get pods -A -o wide")
	n.Must("grep -q 'client-certificate: /var/lib/kubelet/pki/kubelet-client-current.pem' /etc/kubernetes/kubelet.conf")
	n.screen("systemctl status --no-pager --lines=0 kubelet.service")
	n.reset()

	t.Run("packages", func(t *testing.T) {
		n.packKubelet()
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

// podNetwork is a CNI configuration of one node.
const podNetwork = `{"cniVersion": "1.0.0", "name": "pods", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": true, "hairpinMode": true,
   "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
`
