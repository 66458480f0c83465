//go:build e2e

package machine_test

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/e2e/cluster"
	"github.com/playlet-dev/playlet/e2e/daemon"
	"github.com/playlet-dev/playlet/e2e/isolate"
	"github.com/playlet-dev/playlet/e2e/kubeimages"
	"github.com/playlet-dev/playlet/e2e/machine"
	"github.com/playlet-dev/playlet/e2e/parts/install"
)

// kubeadmHost is the configuration of a cluster. Its control plane is not emulated.
const kubeadmHost = `apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {advertiseAddress: ` + isolate.NodeIP + `, bindPort: PORT}
nodeRegistration: {criSocket: "unix:///run/containerd/containerd.sock"}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: ` + kubeimages.Version + `
networking: {podSubnet: 10.244.0.0/16}
---
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
serverTLSBootstrap: true
`

const kubeadmJoin = `apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
discovery: {bootstrapToken: {token: TOKEN, apiServerEndpoint: "SERVER", caCertHashes: [HASH]}}
` + kubeadmTimeouts

// joinedPod has a volume of an API object and a service account's token.
const joinedPod = `apiVersion: v1
kind: ConfigMap
metadata: {name: greeting}
data: {word: hello}
---
apiVersion: v1
kind: Pod
metadata: {name: shell}
spec:
  nodeName: machine
  terminationGracePeriodSeconds: 1
  containers:
  - name: shell
    image: ` + machine.ShellImage + `
    command: [sh, -c, "echo started; exec sleep 1000000"]
    volumeMounts: [{name: greeting, mountPath: /greeting}]
  volumes: [{name: greeting, configMap: {name: greeting}}]
`

// kubeadmControl is a control plane of this machine's own programs, which kubeadm made its cluster of.
type kubeadmControl struct {
	*cluster.Cluster
	t          *testing.T
	log        *screenLog
	kubeadm    string
	kubeconfig string
}

// newKubeadmControl starts a control plane and has kubeadm run the phases of init that make objects in it. Certificates that it
// signs are valid for so long.
func newKubeadmControl(t *testing.T, n *kubeadmNode, valid time.Duration) *kubeadmControl {
	t.Helper()
	c := &kubeadmControl{t: t, log: n.log, kubeadm: n.parts.Kubeadm,
		Cluster: cluster.Start(t, "--enable-bootstrap-token-auth", "--kubelet-certificate-authority=ca.crt")}
	// The controller manager makes the account again, with a token in pods.
	err := c.Admin.CoreV1().ServiceAccounts("default").Delete(t.Context(), "default", metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	config, err := c.Kubeconfig("system:kube-controller-manager")
	if err == nil {
		c.kubeconfig, err = c.Kubeconfig("kubernetes-admin", "system:masters")
	}
	if err != nil {
		t.Fatal(err)
	}
	file := func(name string) string { return filepath.Join(c.Dir, name) }
	c.start(n.parts.ControllerManager, "--kubeconfig="+config, "--leader-elect=false", "--bind-address=127.0.0.1",
		"--controllers=*,bootstrap-signer-controller,token-cleaner-controller", "--use-service-account-credentials",
		"--root-ca-file="+c.CAFile, "--service-account-private-key-file="+file("sa.key"), "--cluster-signing-duration="+valid.String(),
		"--cluster-signing-cert-file="+c.CAFile, "--cluster-signing-key-file="+file("ca.key"))
	server, err := url.Parse(c.URL())
	if err == nil {
		err = os.WriteFile(file("kubeadm.yaml"), []byte(strings.Replace(kubeadmHost, "PORT", server.Port(), 1)), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, phase := range []string{"upload-config kubeadm", "upload-config kubelet", "bootstrap-token --skip-token-print"} {
		c.screen("kubeadm init phase " + phase + " --config kubeadm.yaml --kubeconfig " + filepath.Base(c.kubeconfig))
	}
	return c
}

// start starts a program of the control plane, until the test ends.
func (c *kubeadmControl) start(program string, args ...string) {
	c.t.Helper()
	name := filepath.Base(program)
	d := &daemon.Daemon{Name: name, Log: filepath.Join(c.Dir, name+".log")}
	if err := d.Start(exec.Command(program, args...)); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		if c.t.Failed() {
			c.t.Logf("last lines of %s:\n%s", name, d.Last(40))
		}
		if err := d.End(syscall.SIGTERM); err != nil {
			c.t.Error(err)
		}
	})
}

// join joins a node with an enabled service, with further lines of the JoinConfiguration.
func (c *kubeadmControl) join(n *kubeadmNode, more string) {
	c.t.Helper()
	_, text, _ := strings.Cut(c.screen("kubeadm token create --print-join-command"), "kubeadm join ") // after warnings
	join := strings.Fields(text)
	if len(join) != 5 {
		c.t.Fatalf("the arguments of kubeadm join are %q", join)
	}
	n.write("/etc/kubeadm.yaml", strings.NewReplacer("SERVER", join[0], "TOKEN", join[2], "HASH", join[4]).Replace(kubeadmJoin)+more)
	n.screen("systemctl enable kubelet.service")
	n.screen("cat /etc/kubeadm.yaml")
	n.screen("kubeadm join --config /etc/kubeadm.yaml")
}

// apply writes objects to a file, and applies it.
func (c *kubeadmControl) apply(objects string) {
	c.t.Helper()
	if err := os.WriteFile(filepath.Join(c.Dir, "pod.yaml"), []byte(objects), 0o600); err != nil {
		c.t.Fatal(err)
	}
	c.screen("kubectl apply -f pod.yaml")
}

// run runs a command of the shell beside the control plane.
func (c *kubeadmControl) run(ctx context.Context, command string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, commandLimit)
	defer cancel()
	programs, err := install.LocateCluster()
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "sh", "-c", command)
	cmd.Dir, cmd.Env = c.Dir, append(os.Environ(), "HOME="+c.Dir, "KUBECONFIG="+c.kubeconfig,
		"PATH="+filepath.Dir(c.kubeadm)+":"+filepath.Dir(programs.Kubectl)+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%q: %w\n%s", command, err, out)
	}
	return string(out), err
}

// screen runs a command as an administrator would, and adds it with its output to the log.
func (c *kubeadmControl) screen(command string) string {
	c.t.Helper()
	c.log.begin("control", command)
	out, err := c.run(c.t.Context(), command)
	c.log.add(out)
	if err != nil {
		c.t.Fatal(err)
	}
	return strings.TrimSuffix(out, "\n")
}

// await repeats a command until its output is accepted.
func (c *kubeadmControl) await(command string, good func(string) bool) string {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), commandLimit)
	defer cancel()
	for {
		out, err := c.run(ctx, command)
		if err == nil && good(out) {
			return out
		}
		select {
		case <-ctx.Done():
			c.t.Fatalf("after %s %q gives %v\n%s", commandLimit, command, err, out)
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// servingRequest waits for an open request of a node for a serving certificate, and returns its name.
func (c *kubeadmControl) servingRequest(ctx context.Context, node string) (string, error) {
	for {
		open, err := c.OpenRequests(ctx, node, certificatesv1.KubeletServingSignerName)
		if err == nil && len(open) > 0 {
			return open[0].Name, nil
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("%s has no open request: %w, %w", node, ctx.Err(), err)
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// approveServing approves the requests of a node for serving certificates, until the test ends.
func (c *kubeadmControl) approveServing(node string) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.t.Context()))
	var approver sync.WaitGroup
	approver.Go(func() {
		for ctx.Err() == nil {
			if name, err := c.servingRequest(ctx, node); err == nil {
				_, _ = c.run(ctx, "kubectl certificate approve "+name) // an error is repeated
			}
		}
	})
	c.t.Cleanup(func() {
		cancel()
		approver.Wait()
	})
}

// An unmodified kubeadm joins a Debian machine, on which the agent's package is installed, to a cluster: discovery, the node's
// first certificates, a node that is ready with a CNI configuration, a pod with logs and exec, the rotation of the certificates,
// upgrade, drain and reset. The real kubelet has the node in between. The server trusts serving certificates of its authority
// only.
func TestKubeadmJoin(t *testing.T) { machine.Each(t, testKubeadmJoin) }

func testKubeadmJoin(t *testing.T, release install.Release) {
	n := newKubeadmNode(t, machine.Options{Release: release, Ports: []int{10250}}, "kubeadm-join")
	// A node asks for its next certificate after 70 to 90 % of the time, which begins five minutes before the signature.
	c := newKubeadmControl(t, n, 15*time.Minute)
	is := func(want string) func(string) bool { return func(out string) bool { return out == want } }
	has := func(want string) func(string) bool {
		return func(out string) bool { return strings.Contains(out, want) }
	}

	c.join(n, "")
	node := n.node()
	c.await(node, is(n.version+" False")) // without a CNI configuration
	c.screen("kubectl get nodes -o wide")
	n.write("/etc/cni/net.d/10-pods.conflist", podNetwork)
	c.await(node, is(n.version+" True"))
	c.screen("kubectl get nodes -o wide")
	c.screen("kubectl get csr")
	const current = "readlink -f /var/lib/kubelet/pki/kubelet-client-current.pem"
	n.Must("grep -q 'client-certificate: /var/lib/kubelet/pki/kubelet-client-current.pem' /etc/kubernetes/kubelet.conf")
	n.fails("test -e /etc/kubernetes/bootstrap-kubelet.conf")

	c.await("kubectl get serviceaccount default", has("default"))
	c.apply(joinedPod)
	c.await("kubectl get pod shell -o jsonpath='{.status.phase}'", is("Running"))
	c.screen("kubectl get pods -A -o wide")
	ctx, cancel := context.WithTimeout(t.Context(), commandLimit)
	defer cancel()
	request, err := c.servingRequest(ctx, n.Name)
	if err != nil {
		t.Fatal(err)
	}
	n.Await(commandLimit, "playlet explain node", func(out string) bool { return strings.Contains(out, "kubectl certificate approve "+request) })
	if _, err := n.served("10250"); err == nil {
		t.Error("port 10250 shows a certificate before one is issued")
	}
	if out, err := c.run(ctx, "kubectl logs shell"); err == nil {
		t.Errorf("there are logs without a serving certificate:\n%s", out)
	}
	c.screen("kubectl certificate approve " + request)
	c.approveServing(n.Name)
	for command, want := range map[string]string{
		"kubectl logs shell":                                                     "started",
		"kubectl exec shell -- cat /greeting/word":                               "hello",
		"kubectl exec shell -- ls /var/run/secrets/kubernetes.io/serviceaccount": "token",
		"kubectl get --raw /api/v1/nodes/" + n.Name + "/proxy/stats/summary":     `"podRef"`,
	} {
		c.await(command, has(want))
	}
	n.Await(commandLimit, "playlet explain node", func(out string) bool { return !strings.Contains(out, "check:") }) // no note
	c.screen("kubectl logs shell")
	c.screen("kubectl exec shell -- cat /greeting/word")

	serving, err := n.served("10250")
	if err != nil || !slices.ContainsFunc(serving.IPAddresses, net.ParseIP(n.Address).Equal) {
		t.Errorf("port 10250 shows %+v, %v; want a certificate for %s", serving, err, n.Address)
	}

	tasks, pod := n.Tasks(), "kubectl get pod shell -o jsonpath='{.metadata.uid} {.status.containerStatuses[0].restartCount}'"
	same := is(c.screen(pod))
	// undisturbed runs commands, after which an agent of a version has the node, and the pod its containers.
	undisturbed := func(version string, commands ...string) {
		t.Helper()
		n.undisturbed(c.await, version, commands...)
		c.await("kubectl exec shell -- cat /greeting/word", has("hello"))
		c.await(pod, same)
		if now := n.Tasks(); now != tasks {
			t.Errorf("after %q there runs\n%s\nand before\n%s", commands, now, tasks)
		}
	}
	undisturbed(n.version, "kubeadm upgrade node", "systemctl restart kubelet.service")
	n.packKubelet()
	n.handOver(undisturbed)
	c.screen("kubectl get nodes -o wide")

	first := n.Must(current)
	n.Must("while [ $(" + current + ") = " + first + " ]; do sleep 5; done")
	begun := time.Now()
	for used := map[string]bool{}; len(used) < 2; time.Sleep(500 * time.Millisecond) {
		requests, err := c.Requests(n.Name)
		if err != nil || time.Since(begun) > commandLimit {
			t.Fatalf("%v; the node's credentials are %v", err, used)
		}
		for _, r := range requests {
			used[r.Credential()] = true
		}
	}
	for begun := time.Now(); ; time.Sleep(500 * time.Millisecond) {
		now, err := n.served("10250")
		if err == nil && !now.Equal(serving) {
			break
		}
		if time.Since(begun) > commandLimit {
			t.Fatalf("port 10250 shows no new certificate, %v", err)
		}
	}
	c.await("kubectl exec shell -- cat /greeting/word", has("hello"))
	n.screen("ls -l /var/lib/kubelet/pki")
	c.screen("kubectl get csr")

	c.screen("kubectl drain " + n.Name + " --force")
	n.reset()
	c.screen("kubectl delete node " + n.Name)
}
