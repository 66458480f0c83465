//go:build e2e

package machine_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/e2e/kubeimages"
	"github.com/playlet-dev/playlet/e2e/machine"
	"github.com/playlet-dev/playlet/e2e/parts/install"
)

// pairPods are a server on one machine, and a client on the other.
const pairPods = `apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  nodeName: machine2
  terminationGracePeriodSeconds: 1
  containers:
  - name: web
    image: registry.k8s.io/shell:1
    command: [sh, -c, "mkdir /www && echo hello from $(hostname) >/www/index.html && exec httpd -f -vv -p 8080 -h /www"]
    readinessProbe: {httpGet: {port: 8080}}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Pod
metadata: {name: client}
spec:
  nodeName: machine1
  terminationGracePeriodSeconds: 1
  containers: [{name: client, image: "registry.k8s.io/shell:1", command: [sh, -c, "exec sleep 1000000"]}]
`

// kubeadm joins two machines of one network. kube-proxy and CoreDNS run on them, so that a pod reaches a Service of the other
// machine by its name, and the API server has logs and exec of both.
func TestKubeadmPair(t *testing.T) { machine.Each(t, testKubeadmPair) }

func testKubeadmPair(t *testing.T, release install.Release) {
	network, err := machine.NewNetwork()
	if err != nil {
		t.Fatal(err)
	}
	var nodes []*kubeadmNode
	for i := range 2 {
		o := machine.Options{Release: release, Network: network, CPUs: 1, Memory: 1536, Ports: []int{10250}}
		n := newKubeadmNode(t, o, fmt.Sprint("kubeadm-pair", i+1))
		if err := kubeimages.Push(n.Registry); err != nil {
			t.Fatal(err)
		}
		if err := n.Mirror(t.Context(), "registry.k8s.io", n.Registry.Addr); err != nil {
			t.Fatal(err)
		}
		n.write("/etc/cni/net.d/10-pods.conflist", strings.Replace(podNetwork, "10.244.0.0", fmt.Sprintf("10.244.%d.0", i+1), 1))
		n.Must(fmt.Sprintf("ip route add 10.244.%d.0/24 via %s", 2-i, install.GuestAddress(2-i)))
		nodes = append(nodes, n)
	}
	c := newKubeadmControl(t, nodes[0], 24*time.Hour)
	scheduler, err := c.Kubeconfig("system:kube-scheduler")
	if err != nil {
		t.Fatal(err)
	}
	c.start(nodes[0].parts.Scheduler, "--kubeconfig="+scheduler, "--leader-elect=false", "--bind-address=127.0.0.1")
	c.screen("kubeadm init phase addon all --config kubeadm.yaml --kubeconfig " + filepath.Base(c.kubeconfig))
	for _, n := range nodes {
		c.join(n, "nodeRegistration: {kubeletExtraArgs: [{name: node-ip, value: "+n.Address+"}]}\n")
		c.approveServing(n.Name)
	}
	for _, n := range nodes {
		c.await(n.node(), func(out string) bool { return out == n.version+" True" })
	}
	has := func(want string) func(string) bool {
		return func(out string) bool { return strings.Contains(out, want) }
	}
	c.await("kubectl get serviceaccount default", has("default"))
	c.apply(pairPods)
	const all = 6 // these, kube-proxy on each machine, two of CoreDNS
	c.await(`kubectl get pods -A -o jsonpath='{range .items[*]}{.metadata.name} {.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}'`,
		func(out string) bool { return strings.Count(out, " True\n") == all })
	c.screen("kubectl get nodes -o wide")
	c.screen("kubectl get pods -A -o wide")
	for command, want := range map[string]string{
		"kubectl exec client -- wget -q -O - http://web.default.svc.cluster.local": "hello from web",
		"kubectl exec client -- nslookup kubernetes.default.svc.cluster.local":     "10.96.0.1",
		"kubectl exec web -- nslookup web.default.svc.cluster.local":               "10.96.",
		"kubectl logs web": "response:200",
	} {
		c.await(command, has(want))
	}
	c.screen("kubectl exec client -- wget -q -O - http://web.default.svc.cluster.local")
	c.screen("kubectl drain " + nodes[1].Name + " --force --ignore-daemonsets")
	for _, n := range nodes {
		n.reset()
	}
}
