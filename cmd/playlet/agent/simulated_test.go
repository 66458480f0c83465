package agent

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/playlet-dev/playlet/actors/resources/resourcestest"
	"github.com/playlet-dev/playlet/actors/sources/apiserver"
	"github.com/playlet-dev/playlet/config"
	"github.com/playlet-dev/playlet/cri/sim"
	"github.com/playlet-dev/playlet/supervisors"
)

// waitLimit bounds every wait of these tests; it is reached only when something is stuck.
const waitLimit = 10 * time.Minute

// rig is the whole agent, as the command wires it, over a simulated runtime.
type rig struct {
	t         testing.TB
	dir       string
	manifests string
	runtime   *sim.Runtime
	groups    *resourcestest.Groups
	agent     *Agent
	log       *logBuffer
	flags     []string
	measured  bool               // for benchmarks, as on a node: logs are scanned rarely, and little is logged
	power     *power             // the machine's
	scales    scales             // nil: the machine is measured
	clients   *apiserver.Clients // of a cluster in memory; nil without one
	meanwhile func()             // is called while something is waited for; may be nil
	failing   func() string      // returns details of a wait that has failed; may be nil
	progress  func() string      // a wait continues while this changes; nil: it is bounded by waitLimit
}

type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// newRig starts a runtime; the agent is started by start.
func newRig(t testing.TB, opts sim.Options, flags ...string) *rig {
	t.Helper()
	dir, err := os.MkdirTemp("", "rig") // a short path: unix sockets have short names
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, dir: dir, manifests: filepath.Join(dir, "manifests"), log: &logBuffer{}, flags: flags,
		groups: resourcestest.New()}
	for _, folder := range []string{r.manifests, r.objects()} {
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	opts.Socket = filepath.Join(dir, "cri.sock")
	if r.runtime, err = sim.Start(opts); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if r.agent != nil {
			r.stop()
		}
		r.runtime.Close()
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
		if t.Failed() && r.log != nil {
			t.Logf("the agent's log:\n%s", tail(r.log.String(), 60))
		}
	})
	return r
}

func tail(s string, lines int) string {
	all := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// objects is the folder of ConfigMaps and Secrets.
func (r *rig) objects() string { return filepath.Join(r.dir, "objects") }

// node is the agent's configuration, by its own command line.
func (r *rig) node() *config.Node {
	r.t.Helper()
	fs := pflag.NewFlagSet("playlet", pflag.ContinueOnError)
	flags := config.AddFlags(fs)
	args := append([]string{
		"--root-dir=" + filepath.Join(r.dir, "root"), "--cert-dir=" + filepath.Join(r.dir, "pki"),
		"--pod-manifest-path=" + r.manifests, "--object-dir=" + r.objects(),
		"--fail-cgroupv1=false", "--fail-swap-on=false", "--make-iptables-util-chains=false",
		"--container-runtime-endpoint=" + r.runtime.Endpoint(), "--admin-socket=" + filepath.Join(r.dir, "admin.sock"),
		"--log-links-dir=" + filepath.Join(r.dir, "links"), "--healthz-port=0", "--enable-server=false",
		"--eviction-hard=memory.available<1Mi", // how full this machine is does not matter
		"--hostname-override=node", "--node-ip=192.0.2.7",
	}, r.flags...)
	if err := fs.Parse(args); err != nil {
		r.t.Fatal(err)
	}
	node, _, err := config.Load(flags, fs)
	if err != nil {
		r.t.Fatal(err)
	}
	node.Kubelet.PodLogsDir = filepath.Join(r.dir, "logs")
	node.Kubelet.ShutdownGracePeriod.Duration = 2 * waitLimit
	node.Kubelet.ShutdownGracePeriodCriticalPods.Duration = waitLimit
	if !r.measured {
		node.Kubelet.ContainerLogMaxSize = "100"
		node.Kubelet.ContainerLogMonitorInterval.Duration = 100 * time.Millisecond // sooner than may be configured
	}
	return node
}

// prepare is an agent that is not started yet, with cgroups in memory.
func (r *rig) prepare() *Agent {
	r.t.Helper()
	level := slog.LevelDebug
	if r.measured {
		level = slog.LevelInfo
	}
	a, err := newAgent(r.node(), slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: level})))
	if err != nil {
		r.t.Fatal(err)
	}
	a.machine.groups, a.machine.kernelLog = r.groups, ""
	if r.scales != nil {
		a.machine.scales = r.scales
	}
	if r.power == nil {
		r.power = newPower()
	}
	a.machine.inhibitor = r.power
	if r.clients != nil {
		a.cluster.clients = r.clients
	}
	return a
}

// start starts the agent, with chaos or nil.
func (r *rig) start(chaos supervisors.Interceptor) {
	r.t.Helper()
	a := r.prepare()
	if err := a.start(chaos); err != nil {
		r.t.Fatal(err)
	}
	r.agent = a
}

// stop stops the agent as SIGTERM does.
func (r *rig) stop() {
	r.t.Helper()
	a := r.agent
	r.agent = nil
	if err := a.Close(); err != nil {
		r.t.Errorf("stopping the agent: %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	if err := a.host.Ops.Close(ctx); err != nil {
		r.t.Errorf("operations: %v", err)
	}
}

// write puts a manifest there, whole.
func (r *rig) write(name, manifest string) {
	r.t.Helper()
	tmp := filepath.Join(r.dir, "new")
	if err := os.WriteFile(tmp, []byte(manifest), 0o644); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Rename(tmp, filepath.Join(r.manifests, name)); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) remove(name string) {
	r.t.Helper()
	if err := os.Remove(filepath.Join(r.manifests, name)); err != nil {
		r.t.Fatal(err)
	}
}

// await waits until the runtime's state satisfies ok.
func (r *rig) await(what string, ok func(sim.Snapshot) bool) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	if err := r.runtime.WaitFor(ctx, ok); err != nil {
		s := r.runtime.Snapshot()
		var b strings.Builder
		for _, sb := range s.Sandboxes {
			fmt.Fprintf(&b, "%s attempt %d ready %v\n", sb.Name, sb.Attempt, sb.Ready)
		}
		for _, c := range s.Containers {
			fmt.Fprintf(&b, "%s/%s attempt %d %s\n", c.PodName, c.Name, c.Attempt, c.State)
		}
		r.t.Fatalf("%s: %v\n%s", what, err, b.String())
	}
}

// manifest is a pod with containers given as "name image".
func manifest(name, policy string, init, regular []string) string {
	var b strings.Builder
	fmt.Fprintf(&b,
		"apiVersion: v1\nkind: Pod\nmetadata:\n  name: %s\nspec:\n  restartPolicy: %s\n  terminationGracePeriodSeconds: 3\n",
		name, policy)
	list := func(key string, containers []string) {
		if len(containers) == 0 {
			return
		}
		fmt.Fprintf(&b, "  %s:\n", key)
		for _, c := range containers {
			n, image, _ := strings.Cut(c, " ")
			fmt.Fprintf(&b, "  - name: %s\n    image: %s\n", n, image)
		}
	}
	list("initContainers", init)
	list("containers", regular)
	return b.String()
}

// contextUntil is a context that ends when quit is closed.
func contextUntil(quit <-chan struct{}) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		select {
		case <-quit:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}
