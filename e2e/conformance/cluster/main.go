// Command cluster runs Kubernetes' conformance suite (k8s.io/kubernetes/test/e2e, the specs marked [Conformance]) against a
// cluster whose nodes are agents alone: etcd, kube-apiserver, the controller manager and the scheduler in namespaces of their
// own, and nodes in namespaces inside them, each with a containerd, kube-proxy and the agent. CoreDNS runs in pods. The first run
// builds the suite and the programs, for minutes.
//
//	go run ./e2e/conformance/cluster [-focus REGEXP] [-skip REGEXP] [-procs N] [-kubelet]
//		[-timeout TIME] [-out FOLDER] [-table FILE]
//
// With -kubelet, the kubelet of the same version runs on the nodes instead. The folder gets the files for the CNCF's conformance
// programme: e2e.log, junit_01.xml, PRODUCT.yaml and README.md.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/playlet-dev/playlet/e2e/cluster"
	"github.com/playlet-dev/playlet/e2e/conformance/suite"
	"github.com/playlet-dev/playlet/e2e/isolate"
	"github.com/playlet-dev/playlet/e2e/parts/install"
	"github.com/playlet-dev/playlet/e2e/stack"
)

var (
	options = suite.Flags(`\[Conformance\]`, 2, 6*time.Hour, "playlet-conformance-cluster")
	table   = flag.String("table", "", "a Markdown file for the results; none when empty")
)

// partsVar passes the paths of the parts to the processes in namespaces, which need not look for them again.
const partsVar = "PLAYLET_E2E_PARTS"

// parts are the programs of the cluster and of the suite.
type parts struct {
	Kubeadm install.Kubeadm
	Cluster install.Cluster
	Tests   install.ClusterTests
	Images  suite.Programs
}

func main() {
	flag.Parse()
	if os.Getenv(nodeVar) != "" {
		os.Exit(isolate.Run(prepareNode, func() int { return exitCode(runNode()) }))
	}
	if !isolate.Inside() {
		if err := getParts(); err != nil {
			os.Exit(exitCode(err))
		}
	}
	os.Exit(stack.Main(func() int {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		return exitCode(run(ctx))
	}))
}

func exitCode(err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "conformance:", err)
	return 1
}

// Agent is the binary, Kubeconfig and Proxy are the kubeconfigs of the agent and of kube-proxy, CA is the cluster's authority.
func getParts() error {
	ctx := context.Background()
	var p parts
	var errs [7]error
	errs[0] = errors.Join(install.EnsureKubeadm(ctx, os.Stderr), install.EnsureCluster(ctx, os.Stderr))
	p.Tests, errs[1] = install.EnsureClusterTests(ctx, os.Stderr)
	p.Images.NodeTests, errs[2] = install.EnsureNodeTests(ctx, os.Stderr)
	p.Images.Root, p.Images.Shell, errs[3] = install.EnsureImagePrograms(ctx, os.Stderr)
	p.Kubeadm, errs[4] = install.LocateKubeadm()
	p.Cluster, errs[5] = install.LocateCluster()
	p.Images.CoreDNS, p.Images.Etcd, p.Images.SampleAPIServer = p.Kubeadm.CoreDNS, p.Cluster.Etcd, p.Tests.SampleAPIServer
	text, err := json.Marshal(p)
	errs[6] = errors.Join(err, os.Setenv(partsVar, string(text)))
	return errors.Join(errs[:]...)
}

func readParts() (p parts, err error) { return p, json.Unmarshal([]byte(os.Getenv(partsVar)), &p) }

func run(ctx context.Context) (err error) {
	p, err := readParts()
	if err == nil {
		err = errors.Join(options.Clear(), os.Mkdir(logs(), 0o755))
	}
	if err != nil {
		return err
	}
	built, err := commit()
	if err != nil {
		return fmt.Errorf("the commit of the checkout: %w", err)
	}
	begun := time.Now()
	c, err := cluster.New(ctx, "--enable-aggregator-routing=true") // webhooks and API services without kube-proxy
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	control, err := startControl(ctx, c, p)
	defer func() { err = errors.Join(err, control.stop()) }()
	if err != nil {
		return err
	}
	nodes, err := startNodes(ctx, c)
	defer func() { err = errors.Join(err, nodes.stop()) }()
	if err != nil {
		return err
	}
	admin, err := c.Kubeconfig("kubernetes-admin", "system:masters")
	if err == nil {
		err = startDNS(ctx, c, p.Cluster.Kubectl, admin)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, nodes.empty(c)) }()
	fmt.Printf("the cluster is ready after %.0f s\n", time.Since(begun).Seconds())
	begun = time.Now()
	s := suite.Suite{
		Ginkgo: p.Images.Ginkgo, Tests: p.Tests.Tests, Dir: isolate.Dir(), Known: known, Log: "e2e.log",
		Args: []string{
			"--kubeconfig=" + admin, "--kubectl-path=" + p.Cluster.Kubectl, "--provider=skeleton", "--report-dir=" + options.Out,
			"--disable-log-dump", "--e2e-output-dir=" + isolate.Dir(),
		},
		Env: []string{"KUBECONFIG=" + admin, "HOME=" + isolate.Dir()},
	}
	results, err := options.Run(ctx, s)
	if err != nil {
		return err
	}
	results.Print(known, options.Out)
	all, err := s.List(ctx, "[Conformance]")
	if err != nil {
		return err
	}
	r := report{Options: *options, Results: results, All: all, Commit: built, Date: begun, Took: time.Since(begun)}
	if err := r.write(*table); err != nil {
		return err
	}
	if len(results.Failed) > 0 {
		return fmt.Errorf("%d tests failed", len(results.Failed))
	}
	return nil
}

// logs is the folder of the logs of the cluster's programs.
func logs() string { return filepath.Join(options.Out, "logs") }
