package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/playlet-dev/playlet/actors/apiserver"
	"github.com/playlet-dev/playlet/actors/events"
	"github.com/playlet-dev/playlet/actors/eviction"
	"github.com/playlet-dev/playlet/actors/images"
	"github.com/playlet-dev/playlet/actors/objects"
	"github.com/playlet-dev/playlet/actors/pod"
	"github.com/playlet-dev/playlet/actors/pods"
	"github.com/playlet-dev/playlet/actors/registration"
	"github.com/playlet-dev/playlet/actors/resources"
	"github.com/playlet-dev/playlet/actors/runtime"
	"github.com/playlet-dev/playlet/actors/server"
	"github.com/playlet-dev/playlet/actors/status"
	"github.com/playlet-dev/playlet/config"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// drainTime bounds how long the tree is given to stop. No container is touched by it.
const drainTime = 10 * time.Second

// settleTime bounds how long what is under way in the runtime is waited for then. A start needs about a second; a stop that
// waits for its grace, or a pull, may need far longer, and is taken up again by the next agent.
const settleTime = 5 * time.Second

// agent is everything of the process that outlives its actors, and the tree.
type agent struct {
	node       *config.Node
	log        *slog.Logger
	client     *cri.Client
	host       *pod.Host
	events     *runtime.Events
	state      *runtime.State
	board      *pods.Board
	listeners  *server.Listeners
	system     *supervisors.System
	wired      map[supervisors.Kind]supervisors.Constructor // of the tree; nil for what the configuration switches off
	lock       *os.File
	pulls      images.Options
	groups     resources.Groups // of the machine
	names      *podNames
	api        *apiserver.Clients  // nil on a node of its own
	ownNode    *registration.Watch // nil there too
	registered *registration.State
	machine    *registration.Reader
	devices    []string // resources of device plugins

	addressBook addressBook
	measured    *eviction.State // what of the node's pressure cannot be measured
	feed        *apiserver.Feed // of the pods that the API server assigns to this node; nil without one
	written     *status.State   // what cannot be written to the API server about pods
	told        *events.State   // what keeps Kubernetes Events from being written
	failed      chan error      // the root of the tree has given up
}

// runAgent is the agent's whole life.
func runAgent(ctx context.Context, node *config.Node, log *slog.Logger) (err error) {
	if err := checkRunOnce(node); err != nil {
		return err
	}
	lock, err := holdLock(ctx, node.LockFile, node.ExitOnLockContention, log)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil // asked to stop before its turn came
	case err != nil:
		return err
	}
	defer func() { err = errors.Join(err, lock.release()) }()
	a, err := newAgent(node, log)
	if err != nil {
		return err
	}
	return a.run(ctx, lock)
}

// run starts the agent, lasts as long as it, and closes it.
func (a *agent) run(ctx context.Context, lock *lockFile) error {
	if err := a.start(nil); err != nil {
		return errors.Join(err, a.close())
	}
	a.log.Info("playlet is running", "version", version(), "node", a.node.NodeName, "runtime", a.node.RuntimeEndpoint(),
		"manifests", a.node.StaticPodPath(), "socket", a.node.AdminSocket)
	return a.live(ctx, lock)
}

// live lasts until the agent is to end, with the service manager told how it is, and then closes it.
func (a *agent) live(ctx context.Context, lock *lockFile) error {
	manager := newServiceManager(a)
	reporting, stopReporting := context.WithCancel(ctx)
	defer stopReporting()
	var reports sync.WaitGroup
	reports.Go(func() { manager.run(reporting) })
	reports.Go(func() { giveMemoryBack(reporting) })
	if a.api == nil { // else registration looks for them
		reports.Go(func() { a.followAddresses(reporting) })
	}
	once := make(chan error, 1)
	if a.node.RunOnce() {
		reports.Go(func() { once <- runOnce(reporting, a.board, onceLimit, a.log) })
	}
	why, err := a.untilEnd(ctx, lock, once)
	manager.stopping(why)
	stopReporting()
	reports.Wait()
	return errors.Join(err, a.close())
}

// untilEnd waits for what ends the agent, and says in words what it was. The error is what makes the process fail.
func (a *agent) untilEnd(ctx context.Context, lock *lockFile, once <-chan error) (why string, err error) {
	select {
	case <-ctx.Done():
		signal.Reset(os.Interrupt, syscall.SIGTERM)
		a.log.Info("stopping; containers go on running; a second signal ends the agent at once")
		return "stopping", nil
	case err := <-once:
		return "the pods were run once", err
	case <-lock.contention():
		a.log.Warn("another process has opened the lock file; stopping, containers go on running", "file", a.node.LockFile)
		return "another process has opened the lock file", nil
	case err := <-a.failed:
		return oneLine(err), fmt.Errorf("giving up, containers go on running: %w", err)
	}
}

// newAgent prepares all that the actors need; nothing is started and nothing listens.
func newAgent(node *config.Node, log *slog.Logger) (*agent, error) {
	facts, dns, err := readHost(node, log)
	if err != nil {
		return nil, err
	}
	if err := node.CheckCgroups(facts.CgroupV2); err != nil {
		return nil, err
	}
	if err := node.CheckCPUs(resources.OnlineCPUs("/sys")); err != nil {
		return nil, err
	}
	api, err := dialAPI(node)
	if err != nil {
		return nil, err
	}
	names := newPodNames()
	log = withPodNames(log, names)
	a := &agent{node: node, log: log, names: names, api: api, state: &runtime.State{}, board: pods.NewBoard(), failed: make(chan error, 1), groups: resources.Host{}, registered: &registration.State{}, measured: &eviction.State{}, written: &status.State{}, told: &events.State{}}
	if err := a.prepareFolders(); err != nil {
		return nil, err
	}
	a.machine = registration.HostPlaces(node.RootDir).Reader()
	machine, err := a.machine.Read(context.Background())
	if err != nil {
		log.Warn("not all of the machine can be read", "reason", err)
	}
	if api != nil {
		a.devices = pluginDevices(registration.DevicesPath, log)
	}
	a.pulls = pullOptions(node)
	a.client, err = cri.Dial(cri.Options{
		RuntimeEndpoint: node.RuntimeEndpoint(), ImageEndpoint: node.ImageEndpoint(), RequestTimeout: node.RuntimeRequestTimeout(),
		Limits: cri.Limits{Pull: a.pulls.Slots()},
	})
	if err != nil {
		return nil, errors.Join(err, a.lock.Close())
	}
	a.host = &pod.Host{
		CRI: a.client, Ops: cri.NewOperations(), Node: facts, DNS: dns, RootDir: node.RootDir, NodeName: node.NodeName,
		RequestTimeout: node.RuntimeRequestTimeout(), Allocatable: allocatable(node, machine), Abilities: abilities(a.state, node.Kubelet.CgroupDriver),
		ResolvConf: deref(node.Kubelet.ResolverConfig, ""), Events: api != nil,
	}
	if node.ObjectDir != "" || api != nil {
		a.host.Objects = objects.NewBoard(node.ObjectDir != "")
		if api != nil {
			a.host.Objects.InCluster()
		}
	}
	a.addressBook.store(nodeIPs(node, log))
	a.host.IPs, a.host.IPsUnsettled = a.hostIPs, a.unsettledIPs
	a.pulls.Service, a.pulls.Operations, a.pulls.Objects = a.client, a.host.Ops, a.host.Objects
	a.pulls.Sizes = a.host.Events
	a.events = runtime.NewEvents(a.client)
	var cluster func() []string
	if api != nil {
		cluster = a.clusterTroubles
	}
	a.listeners = server.NewListeners(server.Config{
		Cluster:     cluster,
		AdminSocket: node.AdminSocket, HealthzAddress: node.Kubelet.HealthzBindAddress, HealthzPort: healthzPort(node),
		Board: a.board, Runtime: runtimeWord(a.state), PodLogsDir: node.PodLogsDir(), Containers: a.client, Commands: a.client,
		Version: version(), Kubernetes: kubernetesVersion, Log: log.With(actorKey, messages.Server.String()),
	})
	return a, nil
}

func healthzPort(node *config.Node) int {
	if p := node.Kubelet.HealthzPort; p != nil {
		return int(*p)
	}
	return 0
}

// prepareFolders makes the folders of the agent's own, and takes the root folder for this process alone.
func (a *agent) prepareFolders() error {
	for _, f := range []struct {
		dir  string
		mode os.FileMode
	}{
		{a.node.RootDir, 0o750}, {filepath.Join(a.node.RootDir, "pods"), 0o750}, {filepath.Join(a.node.RootDir, "playlet"), 0o700},
		{a.node.PodLogsDir(), 0o755},
	} {
		if err := makeFolder(f.dir, f.mode); err != nil {
			return fmt.Errorf("making a folder of the agent: %w", err)
		}
	}
	path := filepath.Join(a.node.RootDir, "playlet", "lock")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("lock file: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return errors.Join(fmt.Errorf("another playlet runs with the same --root-dir %s (its lock %s is held): %w", a.node.RootDir, path, err), f.Close())
	}
	a.lock = f
	return nil
}

// makeFolder makes a folder with this mode, whatever the umask is. One that is there keeps its own.
func makeFolder(dir string, mode os.FileMode) error {
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		return nil
	}
	if err := os.MkdirAll(dir, mode); err != nil {
		return err
	}
	return os.Chmod(dir, mode)
}

// start starts the tree. The interceptor is for chaos, and nil otherwise.
func (a *agent) start(chaos supervisors.Interceptor) error {
	if err := a.listeners.Open(context.Background()); errors.Is(err, server.ErrInUse) {
		return err // anything else may mend itself: the server's actor tries again
	}
	if a.api != nil {
		a.feed = apiserver.NewFeed(apiserver.FeedOptions{
			Clients: a.api, NodeName: a.node.NodeName, Log: a.log.With(actorKey, messages.APIServer.String()),
		})
	}
	for _, source := range unheard(a.node) {
		a.log.Warn("pods of this source are not run yet; pods that are found and that no other source wants are left as they are", "source", source)
	}
	if levels := notEnforced(a.node); len(levels) > 0 {
		a.log.Warn("enforceNodeAllocatable: what is reserved is kept from pods, and not enforced on cgroups of its own yet", "levels", levels)
	}
	if signals := notEvicted(a.node); len(signals) > 0 {
		a.log.Warn("evictionHard: it is kept from pods and, in a cluster, reported in the node's conditions; nothing is evicted at a threshold yet", "signals", signals)
	}
	if a.onlySubmissions() {
		a.log.Warn("no source of pods is configured: those that are submitted (playlet run) are run, and others that are found are left as they are; --pod-manifest-path names a folder of manifests")
	}
	a.wired = a.wire()
	system, err := supervisors.Start(supervisors.Options{
		Constructors: a.wired, Log: a.log, Interceptor: chaos, Fatal: func(err error) { a.failed <- err },
	})
	if err != nil {
		return err
	}
	a.system = system
	a.listeners.Attach(system)
	return nil
}

// close drains the tree, lets the runtime finish what it was asked for, and frees what the process holds. What it could
// not stop in time is named.
func (a *agent) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	var errs []error
	if a.system != nil {
		errs = append(errs, a.system.Shutdown(ctx))
	}
	if a.feed != nil {
		a.feed.Close()
	}
	settle(a.host.Ops, settleTime, a.log)
	a.events.Close()
	if a.ownNode != nil {
		a.ownNode.Close()
	}
	errs = append(errs, a.listeners.Close(), a.client.Close(), a.lock.Close())
	return errors.Join(errs...)
}

// settle refuses new operations and waits for those under way, which the end of the connection would cut off: the runtime
// throws a container away whose start it sees cancelled.
func settle(ops *cri.Operations, limit time.Duration, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := ops.Close(ctx); err != nil {
		log.Warn("what is still under way is cut off; the next agent finds out what became of it", "operations", ops.InFlight(""))
	}
}
