package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/playlet-dev/playlet/e2e/conformance/suite"
	"github.com/playlet-dev/playlet/e2e/daemon"
	"github.com/playlet-dev/playlet/e2e/isolate"
	"github.com/playlet-dev/playlet/e2e/stack"
)

// nodeVar has a node in JSON, in the environment of the process that becomes it.
const nodeVar = "PLAYLET_E2E_NODE"

const (
	clusterDNS    = "10.96.0.10"
	clusterDomain = "cluster.local"
	podNetwork    = "10.100.0.0/16"
)

// node is a node of the cluster.
type node struct {
	Name, Address, Pods string
	// Others are the nodes that its pods reach.
	Others []node `json:",omitempty"`
	// Agent is the binary, Kubeconfig and Proxy are those of the agent and of kube-proxy, CA is the cluster's authority.
	Agent, Kubeconfig, Proxy, CA string
	// Cluster is the network namespace of the control plane. Logs is the folder of logs.
	Cluster, Logs string
}

func prepareNode(dir string) error {
	n, err := thisNode()
	if err != nil {
		return err
	}
	return os.Symlink(n.Agent, filepath.Join(dir, "playlet"))
}

func thisNode() (n node, err error) { return n, json.Unmarshal([]byte(os.Getenv(nodeVar)), &n) }

// agentRuns is the line that a node prints when its agent runs.
const agentRuns = "the agent runs"

// runNode is the node until it is asked to end.
func runNode() (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	n, err1 := thisNode()
	p, err2 := readParts()
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if err := errors.Join(syscall.Sethostname([]byte(n.Name)), n.connect()); err != nil {
		return err
	}
	s, err := stack.New(ctx, stack.Options{Mirrored: []string{suite.Mirrored}, Subnet: n.Pods})
	if err != nil {
		return err
	}
	defer func() {
		runtime := s.RuntimeLog()
		err = errors.Join(err, s.Stop(), os.WriteFile(filepath.Join(n.Logs, n.Name+"-containerd.log"), []byte(runtime), 0o644))
	}()
	names, err := suite.PushImages(s.Registry, p.Images)
	if err != nil {
		return err
	}
	for _, name := range names {
		if _, err := s.Pull(ctx, suite.Mirrored+"/"+name); err != nil {
			return err
		}
	}
	proxy := daemon.Daemon{Name: "kube-proxy", Log: filepath.Join(n.Logs, n.Name+"-kube-proxy.log")}
	defer func() { err = errors.Join(err, proxy.End(syscall.SIGTERM)) }()
	if err := proxy.Start(exec.Command(p.Kubeadm.Proxy, "--kubeconfig="+n.Proxy, "--hostname-override="+n.Name,
		"--proxy-mode=iptables", "--cluster-cidr="+podNetwork, "--bind-address="+n.Address,
		// These values belong to the machine.
		"--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0", "--conntrack-tcp-timeout-close-wait=0",
	)); err != nil {
		return err
	}
	a, err := n.startAgent(s)
	if err != nil {
		return err
	}
	fmt.Println(agentRuns)
	<-ctx.Done()
	return os.WriteFile(filepath.Join(n.Logs, n.Name+"-agent.log"), []byte(a.Log()), 0o644)
}

func (n node) startAgent(s *stack.Stack) (*stack.Agent, error) {
	a, err := s.NewAgent("--kubeconfig="+n.Kubeconfig, "--hostname-override="+n.Name, "--node-ip="+n.Address)
	if err != nil {
		return nil, err
	}
	if options.Kubelet {
		if a.Binary, err = stack.Kubelet(); err != nil {
			return nil, err
		}
	}
	a.Config["port"] = 10250
	a.Config["clusterDNS"], a.Config["clusterDomain"] = []string{clusterDNS}, clusterDomain
	a.Config["authentication"] = map[string]any{
		"anonymous": map[string]any{"enabled": false}, "webhook": map[string]any{"enabled": true},
		"x509": map[string]any{"clientCAFile": n.CA},
	}
	a.Config["authorization"] = map[string]any{"mode": "Webhook"}
	return a, a.Start()
}

// connect gives this network namespace a link to the cluster's bridge in place of the bridge that isolate makes.
func (n node) connect() error {
	cluster := "nsenter --net=" + n.Cluster + " ip link "
	lines := []string{
		"ip link delete " + isolate.HostName,
		cluster + "add " + n.Name + " type veth peer name eth0 netns " + fmt.Sprint(os.Getpid()),
		cluster + "set " + n.Name + " master " + isolate.HostName + " up",
		"ip address add " + n.Address + "/24 dev eth0",
		"ip link set eth0 up",
		"ip route add default via " + isolate.NodeIP,
	}
	for _, o := range n.Others {
		lines = append(lines, "ip route add "+o.Pods+" via "+o.Address)
	}
	return runLines(lines...)
}

// runLines runs commands without a shell.
func runLines(lines ...string) error {
	for _, line := range lines {
		words := strings.Fields(line)
		if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", line, err, out)
		}
	}
	return nil
}
