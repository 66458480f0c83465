package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/cmd/playlet/dev/process"
	"github.com/playlet-dev/playlet/e2e/cluster"
	"github.com/playlet-dev/playlet/e2e/isolate"
)

// nodeCount is the least that the suite takes.
const nodeCount = 2

// readyLimit bounds the wait for nodes and for CoreDNS; it is reached only when something is broken.
const readyLimit = 10 * time.Minute

// nodes are the processes of the cluster's nodes.
type nodes []*process.Process

// startNodes starts the nodes and returns when the API server has them as ready.
func startNodes(ctx context.Context, c *cluster.Cluster) (started nodes, err error) {
	space := filepath.Join(isolate.Dir(), "net")
	if err := os.WriteFile(space, nil, 0o600); err != nil {
		return nil, err
	}
	if err := unix.Mount("/proc/self/ns/net", space, "", unix.MS_BIND, ""); err != nil {
		return nil, fmt.Errorf("network namespace of the cluster: %w", err)
	}
	proxy, err := c.Kubeconfig("system:kube-proxy")
	if err != nil {
		return nil, err
	}
	all := make([]node, nodeCount)
	for i := range all {
		k := i + 1
		all[i] = node{
			Name: fmt.Sprint("node", k), Address: fmt.Sprint("192.168.77.", 10+k), Pods: fmt.Sprintf("10.100.%d.0/24", k),
			Agent: filepath.Join(isolate.Dir(), "playlet"), Proxy: proxy, CA: c.CAFile, Cluster: space,
			Logs: logs(),
		}
		if all[i].Kubeconfig, err = c.Kubeconfig("system:node:"+all[i].Name, "system:nodes"); err != nil {
			return nil, err
		}
		if err := runLines("ip route add " + all[i].Pods + " via " + all[i].Address); err != nil {
			return nil, err
		}
	}
	for i, n := range all {
		n.Others = append(append([]node{}, all[:i]...), all[i+1:]...)
		p, err := n.start()
		if err != nil {
			return started, err
		}
		started = append(started, p)
	}
	for _, n := range all {
		if err := await(ctx, n.Name, func() error { return nodeReady(ctx, c, n.Name) }); err != nil {
			return started, err
		}
	}
	return started, nil
}

func nodeReady(ctx context.Context, c *cluster.Cluster, name string) error {
	n, err := c.Admin.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, condition := range n.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
			return nil
		}
	}
	return errors.New("the node is not ready")
}

// await repeats a question until it returns no error.
func await(ctx context.Context, subject string, question func() error) error {
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	if err := process.Await(ctx, nil, func(context.Context) error { return question() }); err != nil {
		return fmt.Errorf("%s: %w", subject, err)
	}
	return nil
}

// start starts this program as the node and returns when its agent runs.
func (n node) start() (*process.Process, error) {
	text, err := json.Marshal(n)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	// The node isolates itself below the folder of this run.
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "PLAYLET_E2E_STAGE=") && !strings.HasPrefix(v, "PLAYLET_E2E_DIR=") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, nodeVar+"="+string(text), "TMPDIR="+isolate.Dir())
	out, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = in, os.Stderr
	p, err := process.Start(cmd)
	if err = errors.Join(err, in.Close()); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if lines.Text() == agentRuns {
			go func() { _, _ = io.Copy(os.Stdout, out) }() // until the node ends
			return p, nil
		}
		fmt.Println(n.Name+":", lines.Text())
	}
	return nil, errors.Join(fmt.Errorf("%s did not start", n.Name), p.End(syscall.SIGTERM, time.Minute))
}

// empty deletes all pods and returns when the nodes have none: an agent that ends leaves its pods alone.
func (all nodes) empty(c *cluster.Cluster) error {
	ctx := context.Background()
	spaces, err := c.Admin.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	errs := []error{err, c.Admin.AppsV1().Deployments("kube-system").Delete(ctx, "coredns", metav1.DeleteOptions{})}
	for _, s := range spaces.Items {
		if !strings.HasPrefix(s.Name, "kube-") && s.Name != "default" && s.DeletionTimestamp == nil {
			errs = append(errs, c.Admin.CoreV1().Namespaces().Delete(ctx, s.Name, metav1.DeleteOptions{}))
		}
	}
	return errors.Join(append(errs, await(ctx, "the last pods", func() error {
		pods, err := c.Admin.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
		if err == nil && len(pods.Items) > 0 {
			err = fmt.Errorf("%d are left", len(pods.Items))
		}
		return err
	}))...)
}

// stop ends the nodes.
func (all nodes) stop() (err error) {
	for _, p := range all {
		err = errors.Join(err, p.End(syscall.SIGTERM, readyLimit))
	}
	return err
}
