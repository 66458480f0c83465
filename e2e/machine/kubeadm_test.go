//go:build e2e

package machine_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/e2e/kubeimages"
	"github.com/playlet-dev/playlet/e2e/machine"
	"github.com/playlet-dev/playlet/e2e/parts/install"
)

// kubeadmTimeouts are longer than kubeadm's defaults: emulated machines are slow.
const kubeadmTimeouts = "timeouts: {controlPlaneComponentHealthCheck: 30m, kubeletHealthCheck: 30m, kubernetesAPICall: 30m, tlsBootstrap: 30m, discovery: 30m, upgradeManifests: 30m}\n"

// kubeadmNode is a machine with the agent's package and kubeadm.
type kubeadmNode struct {
	*machine.Node
	t       *testing.T
	parts   install.Kubeadm
	cluster install.Cluster
	version string // of the agent, as a node reports it
	log     *screenLog
}

// newKubeadmNode boots a machine, and writes a screen log of the name. The machine has neither a cluster nor a CNI configuration.
func newKubeadmNode(t *testing.T, o machine.Options, log string) *kubeadmNode {
	t.Helper()
	n := &kubeadmNode{t: t, log: newScreenLog(t, log+"-"+string(o.Release))}
	var err error
	if n.parts, err = install.LocateKubeadm(); err != nil {
		t.Skip("there is no kubeadm:", err)
	}
	if n.cluster, err = install.LocateCluster(); err != nil {
		t.Skip("there is no cluster:", err)
	}
	n.Node = machine.StartNode(t, o, n.parts.Kubeadm, n.cluster.Kubectl, n.cluster.Kubelet)
	n.Must("rm /etc/cni/net.d/* && install -m 755 /srv/files/kubeadm /srv/files/kubectl /usr/bin/ && echo " + n.Address + " " + n.Name + " >>/etc/hosts")
	version := n.screen("kubelet --version")
	if !strings.HasPrefix(version, "Kubernetes "+kubeimages.Version+"+playlet") {
		t.Fatalf("kubelet --version gives %q", version)
	}
	n.version = strings.TrimPrefix(version, "Kubernetes ")
	t.Cleanup(func() {
		if t.Failed() {
			journal, err := n.Run(context.WithoutCancel(t.Context()), "journalctl -q -u kubelet.service -u playlet.service | tail -n 200")
			t.Logf("the journal ends with\n%s%v", journal.Stdout, err)
		}
	})
	return n
}

// write writes a file of the guest.
func (n *kubeadmNode) write(path, text string) {
	n.t.Helper()
	if err := n.Write(n.t.Context(), path, text, 0o600); err != nil {
		n.t.Fatal(err)
	}
}

// screen runs a command as an administrator would, and adds it with its output to the log.
func (n *kubeadmNode) screen(command string) string {
	n.t.Helper()
	n.log.begin(n.Name, command)
	r, err := n.Run(n.t.Context(), "exec 2>&1; "+command)
	n.log.add(r.Stdout)
	if err != nil || r.Code != 0 {
		n.t.Fatalf("%q on %s gives code %d, %v\n%s", command, n.Name, r.Code, err, r.Stdout)
	}
	return strings.TrimSuffix(r.Stdout, "\n")
}

// kubeletDropIn is the drop-in of Kubernetes' packages for the variables of kubeadm.
const kubeletDropIn = `[Service]
Environment="KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf"
Environment="KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml"
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
EnvironmentFile=-/etc/default/kubelet
ExecStart=
ExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
`

// packKubelet makes /root/kubelet.deb of the real kubelet, with its unit and kubeletDropIn.
func (n *kubeadmNode) packKubelet() {
	n.t.Helper()
	const root = "/root/kubelet"
	n.write(root+"/usr/lib/systemd/system/kubelet.service", "[Service]\nExecStart=/usr/bin/kubelet\nRestart=always\nRestartSec=10\n"+
		"[Install]\nWantedBy=multi-user.target\n")
	n.write(root+"/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf", kubeletDropIn)
	n.write(root+"/DEBIAN/control", "Package: kubelet\nVersion: "+strings.TrimPrefix(kubeimages.Version, "v")+
		"\nArchitecture: amd64\nMaintainer: none\nDescription: kubelet\n")
	n.Must("install -D -m 755 /srv/files/kubelet " + root + "/usr/bin/kubelet && dpkg-deb -Znone --build " + root + " /root/kubelet.deb")
}

// handOver gives the node to the real kubelet of packKubelet and back, by packages and by the agent's own commands. undisturbed
// runs commands, after which an agent of a version has the node.
func (n *kubeadmNode) handOver(undisturbed func(version string, commands ...string)) {
	n.t.Helper()
	const reload, restart = "systemctl daemon-reload", "systemctl restart kubelet.service"
	undisturbed(kubeimages.Version, "dpkg -i /root/kubelet.deb", reload, restart)
	undisturbed(n.version, "playlet install --replace-kubelet")
	undisturbed(kubeimages.Version, "playlet uninstall")
	undisturbed(n.version, "dpkg -r kubelet", reload, restart)
}

// undisturbed runs commands, after which another process has the node: an agent of a version. await runs kubectl.
func (n *kubeadmNode) undisturbed(await func(string, func(string) bool) string, version string, commands ...string) {
	n.t.Helper()
	const process = "systemctl show -p MainPID kubelet.service"
	pid := n.Must(process)
	for _, command := range commands {
		n.screen(command)
	}
	if now := n.Must(process); now == pid {
		n.t.Errorf("after %q the service has %s, as before", commands, now)
	}
	heartbeat := "kubectl get lease -n kube-node-lease " + n.Name + " -o jsonpath='{.spec.renewTime}'"
	old := await(heartbeat, func(out string) bool { return strings.Contains(out, "Z") })
	await(heartbeat, func(out string) bool { return out != old })
	await(n.node(), func(out string) bool { return out == version+" True" })
}

// node is a command for the version of the node's agent, and whether the node is ready.
func (n *kubeadmNode) node() string {
	return `kubectl get node ` + n.Name + ` -o jsonpath='{.status.nodeInfo.kubeletVersion} {.status.conditions[?(@.type=="Ready")].status}'`
}

// served returns the certificate that a port of the guest shows.
func (n *kubeadmNode) served(port string) (*x509.Certificate, error) {
	raw, err := n.Dial(n.t.Context(), "tcp", "127.0.0.1:"+port)
	if err != nil {
		return nil, err
	}
	defer raw.Close() //nolint:errcheck // nothing was written
	conn := tls.Client(raw, &tls.Config{InsecureSkipVerify: true})
	if err := conn.HandshakeContext(n.t.Context()); err != nil {
		return nil, err
	}
	return conn.ConnectionState().PeerCertificates[0], nil
}

// fails checks that commands fail.
func (n *kubeadmNode) fails(commands ...string) {
	n.t.Helper()
	for _, command := range commands {
		if r, err := n.Run(n.t.Context(), command); err != nil || r.Code == 0 {
			n.t.Errorf("%q on %s gives code 0, %v\n%s", command, n.Name, err, r.Stdout)
		}
	}
}

// reset has kubeadm reset the node, which leaves no containers and no state of the node.
func (n *kubeadmNode) reset() {
	n.t.Helper()
	n.screen("kubeadm reset --force")
	// kubeadm gives the runtime two seconds for a call, which an emulated one may exceed.
	n.Await(commandLimit, `[ -z "$(ctr -n k8s.io containers list -q)" ] || { kubeadm reset --force && false; }`, nil)
	for state, command := range map[string]string{
		"cgroups of containers": "find /sys/fs/cgroup/kubepods.slice -name '*.scope'",
		"mounts":                "grep -F ' /var/lib/kubelet/' /proc/mounts || true",
		"files":                 "find /var/lib/kubelet /etc/kubernetes -mindepth 1 ! -type d ! -path '/etc/kubernetes/tmp/*'",
	} {
		if left := n.Must(command); left != "" {
			n.t.Errorf("a reset leaves %s:\n%s", state, left)
		}
	}
	n.fails("systemctl is-active kubelet.service")
}

// screenLog is a document with commands and their output.
type screenLog struct {
	t         *testing.T
	name      string
	artifacts string
	text      strings.Builder
}

func newScreenLog(t *testing.T, name string) *screenLog {
	l := &screenLog{t: t, name: name + ".md", artifacts: t.ArtifactDir()}
	t.Cleanup(l.keep)
	return l
}

func (l *screenLog) begin(host, command string) {
	fmt.Fprintf(&l.text, "root@%s:~# %s\n", host, command)
}

// add adds a command's output, without spaces at the ends of lines.
func (l *screenLog) add(output string) {
	for line := range strings.Lines(output) {
		l.text.WriteString(strings.TrimRight(line, " \t\r\n") + "\n")
	}
}

// keep writes the log to the test's artifacts and, if the test passed and machine.DocsDir names a folder, into it.
func (l *screenLog) keep() {
	text := "# kubeadm with Playlet as the kubelet\n\nWritten by `task test-machine`; not to be edited.\n\n```console\n" + l.text.String() + "```\n"
	dirs := []string{l.artifacts}
	if dir := machine.DocsDir(); dir != "" && !l.t.Failed() {
		dirs = append(dirs, dir)
	}
	for _, dir := range dirs {
		if err := os.WriteFile(filepath.Join(dir, l.name), []byte(text), 0o644); err != nil {
			l.t.Error(err)
		}
	}
}
