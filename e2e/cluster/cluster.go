// Package cluster runs a real cluster without nodes for tests and benchmarks: an etcd and a kube-apiserver with certificates of
// its own, RBAC, the Node authorizer and NodeRestriction, and means to disturb them. There is no scheduler and no controller: a
// test sets spec.nodeName, and creates the objects of controllers itself. It runs in the namespaces of stack.Main.
//
//	func TestAPodOfTheCluster(t *testing.T) {
//		c := cluster.Shared(t)          // one for all tests that leave the server alone; cluster.Start(t) for others
//		n := c.Node(t)                  // a name and a kubeconfig, no Node object yet
//		ns := c.Namespace(t)            // of this test, with a service account that mounts no token
//		s := stack.Start(t, stack.Options{})
//		s.Agent(t, n.Args()...)         // --kubeconfig and --hostname-override
//
//		_, err := c.Admin.CoreV1().Pods(ns).Create(t.Context(), pod, metav1.CreateOptions{}) // pod.Spec.NodeName = n.Name
//		…
//		sent, err := c.Requests(n.Name) // the node's requests, from the server's audit log
//	}
//
// With its own cluster, a test may kill and restart the server (KillAPIServer, StartAPIServer), make it forget old resource
// versions (Forget), or restore an earlier state (Save, GoBack). For faults of the network between the server and one node,
// shared or not, the node's kubeconfig names a proxy instead, which preserves the client's identity:
//
//	p := c.Proxy(t)
//	n := c.NodeBehind(t, p)
//	p.Answer(http.StatusTooManyRequests) // until p.Answer(0); also Delay, Cut, Refuse, Freeze
package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/playlet-dev/playlet/e2e/daemon"
	"github.com/playlet-dev/playlet/e2e/isolate"
	"github.com/playlet-dev/playlet/e2e/parts/install"
	"github.com/playlet-dev/playlet/e2e/stack"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// waitLimit bounds every wait; it is reached only when something is broken, however slow the machine.
const waitLimit = 5 * time.Minute

// TB is the part of testing.TB that this package uses.
type TB = stack.TB

// Cluster is a running etcd and kube-apiserver. Its methods may be called from several goroutines, but those that stop and
// start a part only one at a time.
type Cluster struct {
	// Admin may do everything, as a member of system:masters.
	Admin kubernetes.Interface
	// Config is the configuration of Admin.
	Config *rest.Config
	// Dir holds everything this cluster writes. CAFile, in PEM, has the authority of all its certificates.
	Dir, CAFile string

	parts     install.Cluster
	args      []string // further ones of the server
	number    int      // from 1, within the process
	shared    bool
	pki       *pki
	etcd      *daemon.Daemon
	apiServer *daemon.Daemon
}

var (
	numbered atomic.Int32
	shared   struct {
		sync.Mutex
		cluster *Cluster
		err     error
	}
	// every has all clusters of this process, for PIDs.
	every struct {
		sync.Mutex
		list []*Cluster
	}
)

// Start starts a cluster for one test, with further arguments of its server, and stops it at the test's end. The logs of a failed
// test have the server's last lines.
func Start(t TB, args ...string) *Cluster {
	t.Helper()
	c, err := New(context.Background(), args...)
	if err != nil {
		t.Fatalf("cluster: %v", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("last lines of kube-apiserver:\n%s\nof etcd:\n%s", c.apiServer.Last(40),
				c.etcd.Last(10))
		}
		if err := c.Stop(); err != nil {
			t.Errorf("stopping the cluster: %v", err)
		}
	})
	return c
}

// Shared returns the cluster that all tests of this process share, which the first one starts. It ends with the process. It
// rejects operations that would disturb other tests.
func Shared(t TB) *Cluster {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.cluster == nil && shared.err == nil {
		if shared.cluster, shared.err = New(context.Background()); shared.err == nil {
			shared.cluster.shared = true
		}
	}
	if shared.err != nil {
		t.Fatalf("the shared cluster: %v", shared.err)
	}
	return shared.cluster
}

// New starts a cluster, passes further arguments to its server, and returns when the server is ready. The caller calls Stop.
func New(ctx context.Context, args ...string) (*Cluster, error) {
	if !isolate.Inside() {
		return nil, errors.New("not in namespaces of its own: begin the program with stack.Main")
	}
	parts, err := install.LocateCluster()
	if err != nil {
		return nil, err
	}
	n := int(numbered.Add(1))
	c := &Cluster{Dir: filepath.Join(isolate.Dir(), fmt.Sprint("c", n)), number: n, parts: parts, args: args}
	c.CAFile = filepath.Join(c.Dir, "ca.crt")
	c.etcd = &daemon.Daemon{Name: "etcd", Log: filepath.Join(c.Dir, "etcd.log")}
	c.apiServer = &daemon.Daemon{Name: "kube-apiserver", Log: filepath.Join(c.Dir, "kube-apiserver.log")}
	every.Lock()
	every.list = append(every.list, c)
	every.Unlock()
	if err := c.setUp(ctx); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

func (c *Cluster) setUp(ctx context.Context) error {
	if err := os.Mkdir(c.Dir, 0o755); err != nil {
		return err
	}
	var err error
	if c.pki, err = newPKI(c.Dir); err != nil {
		return err
	}
	if c.Config, err = c.config("admin", c.URL(), "kubernetes-admin", "system:masters"); err != nil {
		return err
	}
	if c.Admin, err = kubernetes.NewForConfig(c.Config); err != nil {
		return err
	}
	if err := c.startEtcd(); err != nil {
		return err
	}
	if err := c.startAPIServer(); err != nil {
		return err
	}
	return c.populate(ctx, "default")
}

// command is one of the parts.
func (c *Cluster) command(path string, args ...string) *exec.Cmd {
	cmd := exec.Command(path, args...)
	cmd.Dir, cmd.Env = c.Dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + c.Dir}
	return cmd
}

// Stop ends the parts and removes their files. It may be called again.
func (c *Cluster) Stop() error {
	err := errors.Join(c.apiServer.End(syscall.SIGKILL), c.etcd.End(syscall.SIGKILL))
	if os.Getenv("PLAYLET_E2E_KEEP") != "" {
		return err
	}
	return errors.Join(err, os.RemoveAll(c.Dir))
}

// PIDs returns the processes of all clusters of this process, so that a search can exclude them.
func PIDs() []int {
	every.Lock()
	defer every.Unlock()
	var pids []int
	for _, c := range every.list {
		for _, p := range []*daemon.Daemon{c.etcd, c.apiServer} {
			if pid := p.PID(); pid != 0 {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// own rejects operations that would disturb other tests.
func (c *Cluster) own(what string) error {
	if c.shared {
		return fmt.Errorf("%s: other tests use this cluster: begin with cluster.Start", what)
	}
	return nil
}
