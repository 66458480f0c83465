// Package agent is the process that runs pods: it makes what outlives the actors, binds each row of the tree to the
// constructor of its actor, and lasts until it is asked to stop.
package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/playlet-dev/playlet/actors/events"
	"github.com/playlet-dev/playlet/actors/identity"
	"github.com/playlet-dev/playlet/actors/images/provider"
	"github.com/playlet-dev/playlet/actors/objects"
	"github.com/playlet-dev/playlet/actors/pod"
	"github.com/playlet-dev/playlet/actors/pods"
	"github.com/playlet-dev/playlet/actors/prober"
	"github.com/playlet-dev/playlet/actors/registration"
	"github.com/playlet-dev/playlet/actors/resources"
	"github.com/playlet-dev/playlet/actors/runtime"
	"github.com/playlet-dev/playlet/actors/server"
	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/actors/server/healthz"
	"github.com/playlet-dev/playlet/actors/server/observatory"
	"github.com/playlet-dev/playlet/actors/shutdown"
	"github.com/playlet-dev/playlet/actors/stats"
	"github.com/playlet-dev/playlet/actors/stats/agentmetrics"
	"github.com/playlet-dev/playlet/cmd/playlet/agent/chains"
	"github.com/playlet-dev/playlet/cmd/playlet/agent/locks"
	"github.com/playlet-dev/playlet/cmd/playlet/agent/memory"
	"github.com/playlet-dev/playlet/cmd/playlet/agent/notify"
	"github.com/playlet-dev/playlet/cmd/playlet/agent/podlog"
	"github.com/playlet-dev/playlet/cmd/playlet/agent/spans"
	"github.com/playlet-dev/playlet/cmd/playlet/cli"
	"github.com/playlet-dev/playlet/cmd/playlet/version"
	"github.com/playlet-dev/playlet/config"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
	"github.com/playlet-dev/playlet/supervisors/chaos"
	recovery "github.com/playlet-dev/playlet/supervisors/guard"
)

// drainTime bounds how long the tree is given to stop. No container is touched by it.
const drainTime = 10 * time.Second

// settleTime bounds how long what is under way in the runtime is waited for then. A start needs about a second; a stop that
// waits for its grace, or a pull, may need far longer, and is taken up again by the next agent.
const settleTime = 5 * time.Second

// Agent is the process: what its actors share and what outlives them, and their tree.
type Agent struct {
	node      *config.Node
	log       *slog.Logger
	names     *podlog.Names
	locks     locks.Held
	cluster   *cluster // nil on a standalone node
	addresses *nodeAddresses
	machine   *registration.Reader
	guard     *guard              // of port 10250
	groups    resources.Groups    // the machine's cgroups
	providers *provider.Providers // of pull credentials; nil where there are none
	inhibitor shutdown.Inhibitor  // of the machine's shutdown; nil where that waits for no pods
	shutdown  shutdown.State      // why that is so although it should wait
	kernelLog string              // where the kernel's log is read; empty: nowhere
	scales    scales              // measure what eviction and images go by; nil: this machine is measured

	client  *cri.Client
	streams *runtime.Events
	runtime *runtime.State
	host    *pod.Host
	board   *pods.Board
	late    *prober.Lateness
	figures *stats.Collector
	metrics *agentmetrics.Metrics
	tracing *spans.Sender // nil where nothing is sampled

	events      *events.Log     // the last ones
	credentials *identity.State // what is wrong with them

	chaos     *chaos.Engine // nil unless it is enabled
	listeners *server.Listeners
	system    *supervisors.System
	failed    chan error // the root of the tree has given up
}

// Run is the agent's whole life: it returns when ctx has ended, or the agent gave up.
func Run(ctx context.Context, node *config.Node, log *slog.Logger) (err error) {
	if err := checkRunOnce(node); err != nil {
		return err
	}
	klog.SetSlogLogger(slog.New(podlog.Library{Handler: log.Handler()}))
	lock, err := locks.Hold(ctx, node.LockFile, node.ExitOnLockContention, log)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil // asked to stop before it held the lock
	case err != nil:
		return err
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	a, err := newAgent(node, log)
	if err != nil {
		return err
	}
	return a.run(ctx, lock)
}

// run starts the agent, lasts as long as it, and closes it.
func (a *Agent) run(ctx context.Context, lock *locks.File) error {
	prepareMachine(a.node, "/proc", a.log)
	_ = a.place(ctx) // keep tells; what a process uses counts for the cgroup that it is in then
	if err := a.start(nil); err != nil {
		return errors.Join(err, a.Close())
	}
	a.log.Info("playlet is running", "version", version.Playlet(), "node", a.node.NodeName,
		"runtime", a.node.Kubelet.ContainerRuntimeEndpoint, "manifests", a.node.Kubelet.StaticPodPath, "socket",
		a.node.AdminSocket)
	return a.live(ctx, lock)
}

// keepEvery is how often what others change of the machine is set right, as by the kubelet.
const keepEvery = time.Minute

// keep is what does something so often, at once and again until its ctx ends. It logs a failure unless it was the last one, too.
func keep(every time.Duration, log *slog.Logger, failed string, do func(context.Context) error) func(context.Context) {
	return func(ctx context.Context) {
		for said := ""; ; {
			err := do(ctx)
			switch {
			case err == nil:
				said = ""
			case err.Error() != said && ctx.Err() == nil:
				said = err.Error()
				log.Warn(failed, "reason", err)
			}
			if !cli.Pause(ctx, every) {
				return
			}
		}
	}
}

// live reports to the service manager until the agent is to end, and then closes it.
func (a *Agent) live(ctx context.Context, lock *locks.File) error {
	manager := notify.New(a.board, a.system, a.log)
	reporting, stopReporting := context.WithCancel(ctx)
	defer stopReporting()
	var reports sync.WaitGroup
	start := func(what string, run func(context.Context)) {
		reports.Go(func() { recovery.GoOn(reporting, a.log, what, run) })
	}
	start("reports to the service manager", manager.Run)
	start("giving memory back", memory.GiveBack)
	start("keeping processes in their cgroups", keep(keepEvery, a.log,
		"processes are not in the cgroups of kubeletCgroups and systemCgroups", a.place))
	if ptr.Deref(a.node.Kubelet.MakeIPTablesUtilChains, true) {
		start("keeping chains of iptables", keep(keepEvery, a.log,
			"the chains of iptables that Kubernetes makes are not all there", chains.Keep))
	}
	start("writing the flight recorder on SIGUSR1", func(ctx context.Context) {
		dumpOnSignal(ctx, a.system.Recorder(), flightFile(a.node), a.log)
	})
	if a.cluster == nil { // else registration looks for them
		start("following the addresses", keep(a.node.Kubelet.NodeStatusUpdateFrequency.Duration, a.log,
			"the node's addresses stay as they were", a.addresses.look))
	}
	once := make(chan error, 1)
	if a.node.Kubelet.RunOnce {
		reports.Go(func() {
			once <- recovery.Call(a.log, "run-once", func() error { return runOnce(reporting, a.board, onceLimit, a.log) })
		})
	}
	why, err := a.untilEnd(ctx, lock, once)
	manager.Stopping(why)
	stopReporting()
	reports.Wait()
	select {
	case unfinished := <-once: // it was stopped while it waited
		err = errors.Join(err, unfinished)
	default:
	}
	return errors.Join(err, a.Close())
}

// untilEnd waits for what ends the agent, and names it. The error makes the process fail.
func (a *Agent) untilEnd(ctx context.Context, lock *locks.File, once <-chan error) (why string, err error) {
	select {
	case <-ctx.Done():
		signal.Reset(os.Interrupt, syscall.SIGTERM)
		a.log.Info("stopping; containers go on running; a second signal ends the agent at once")
		return "stopping", nil
	case err := <-once:
		return "the pods were run once", err
	case <-lock.Contention():
		a.log.Warn("another process has opened the lock file; stopping, containers go on running", "file", a.node.LockFile)
		return "another process has opened the lock file", nil
	case err := <-a.failed:
		return messages.OneLine(err), fmt.Errorf("giving up, containers go on running: %w", err)
	}
}

// Load reads the configuration that the flags name, and makes the log that it asks for.
func Load(flags *config.Flags, set *pflag.FlagSet, out io.Writer) (*config.Node, *slog.Logger, error) {
	node, warnings, err := config.Load(flags, set)
	if err != nil {
		return nil, nil, err
	}
	log := node.Logger(out)
	for _, w := range warnings {
		log.Warn(w.Message, "flag", w.Flag)
	}
	return node, log, nil
}

// Start starts an agent in this process by its command line, and returns while it runs. Its log goes to out.
func Start(args []string, out io.Writer) (*Agent, error) {
	set := pflag.NewFlagSet("playlet", pflag.ContinueOnError)
	flags := config.AddFlags(set)
	if err := set.Parse(args); err != nil {
		return nil, err
	}
	node, log, err := Load(flags, set, out)
	if err != nil {
		return nil, err
	}
	a, err := newAgent(node, log)
	if err != nil {
		return nil, err
	}
	if err := a.start(nil); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

// NodeName is part of static pods' names.
func (a *Agent) NodeName() string { return a.node.NodeName }

// Failed gives the reason when the agent gives up.
func (a *Agent) Failed() <-chan error { return a.failed }

// newAgent prepares all that the actors need; nothing is started and nothing listens.
func newAgent(node *config.Node, log *slog.Logger) (_ *Agent, err error) {
	facts, dns, err := readHost(node, log)
	if err != nil {
		return nil, err
	}
	if err := checkMachine(node, facts.CgroupV2, "/proc", "/sys"); err != nil {
		return nil, err
	}
	providers, err := loadProviders(node, log)
	if err != nil {
		return nil, err
	}
	names := podlog.NewNames()
	log = podlog.WithNames(log, names)
	a := &Agent{
		node: node, log: log, names: names, groups: resources.Host{}, providers: providers, kernelLog: "/dev/kmsg",
		machine: registration.HostPlaces(node.RootDir).Reader(), runtime: &runtime.State{}, board: pods.NewBoard(),
		credentials: &identity.State{}, late: &prober.Lateness{}, failed: make(chan error, 1),
	}
	if a.locks, err = locks.Take(node, log); err != nil { // first: the next two write certificates and kubeconfigs
		return nil, err
	}
	defer func() {
		if err != nil {
			a.cluster.close()
			a.guard.close()
			err = errors.Join(err, a.locks.Close())
		}
	}()
	if a.cluster, err = dialCluster(node, log); err != nil {
		return nil, err
	}
	a.addresses = &nodeAddresses{node: node, log: log, cluster: a.cluster}
	if a.guard, err = openGuard(node, a.cluster, a.addresses, log); err != nil {
		return nil, err
	}
	a.metrics = agentmetrics.New(agentmetrics.Options{
		NodeName: node.NodeName, Board: a.board, Kubernetes: version.Kubernetes, Expiry: a.credentials.Expiry,
		Features: node.Features(),
	})
	if a.tracing, err = spans.New(node, log); err != nil {
		return nil, err
	}
	if a.client, err = cri.Dial(cri.Options{
		Observe: func(ctx context.Context, o cri.Observation) {
			a.metrics.RuntimeCall(o)
			recordRuntimeCall(ctx, o)
		},
		DialOptions:     a.tracing.DialOptions(),
		RuntimeEndpoint: node.Kubelet.ContainerRuntimeEndpoint, ImageEndpoint: node.ImageEndpoint(),
		RequestTimeout: node.Kubelet.RuntimeRequestTimeout.Duration,
		Limits:         cri.Limits{cri.ClassPull: pullOptions(node).Slots()},
		Foreign:        locks.Foreign(node.RootDir, log),
	}); err != nil {
		return nil, err
	}
	a.streams = runtime.NewEvents(a.client, log)
	if a.events, err = events.OpenLog(filepath.Join(stateDir(node), "events.json")); err != nil {
		log.Warn("events of before are not shown", "reason", err)
	}
	found := NodeIPs(node, log)
	a.addresses.found.Store(&found)
	machine, err := a.machine.Read(context.Background())
	if err != nil {
		log.Warn("not all of the machine can be read", "reason", err)
	}
	a.host = &pod.Host{
		CRI: a.client, Ops: cri.NewOperations(), Node: facts, DNS: dns, RootDir: node.RootDir, NodeName: node.NodeName,
		RequestTimeout: node.Kubelet.RuntimeRequestTimeout.Duration, ResolvConf: ptr.Deref(node.Kubelet.ResolverConfig, ""),
		Allocatable: allocatable(node, machine), Abilities: abilities(a.runtime, node.Kubelet.CgroupDriver),
		Devices: resources.NewDevices(node.RootDir, log.With(podlog.ActorKey, messages.Resources.String())),
		Objects: newObjects(node), Events: true, IPs: a.addresses.hostIPs, IPsUnsettled: a.addresses.unsettled,
	}
	a.figures = stats.NewCollector(a.figureOptions())
	if node.EnableChaos {
		a.chaos = chaos.New(a.chaosOptions())
	}
	a.listeners = server.NewListeners(a.serverConfig())
	return a, nil
}

// newObjects holds the ConfigMaps, Secrets, Services and RuntimeClasses; nil on a standalone node without a folder of them.
func newObjects(node *config.Node) *objects.Board {
	if node.ObjectDir == "" && node.Standalone() {
		return nil
	}
	board := objects.NewBoard(node.ObjectDir != "")
	if !node.Standalone() {
		board.InCluster()
	}
	return board
}

// serverConfig is what the listeners serve.
func (a *Agent) serverConfig() server.Config {
	c := server.Config{
		Notes:       []healthz.Note{{Check: "probes", Says: func() []string { return a.late.Problems(time.Now()) }}},
		Checked:     a.metrics.Checked,
		RootDir:     a.node.RootDir,
		AdminSocket: a.node.AdminSocket, AdminSocketGroup: a.node.AdminSocketGroup,
		HealthzAddress: a.node.Kubelet.HealthzBindAddress,
		HealthzPort:    int(ptr.Deref(a.node.Kubelet.HealthzPort, 0)),
		Board:          a.board, Runtime: runtimeForAdmin(a.runtime), Chaos: a.chaos,
		PodLogsDir: a.node.Kubelet.PodLogsDir, CRI: a.client, Events: a.events,
		StreamIdleTimeout: a.node.Kubelet.StreamingConnectionIdleTimeout.Duration,
		Node:              a.nodeAPI(),
		Devices:           a.host.Devices,
		Figures:           a.adminFigures,
		Version:           version.Playlet(), Kubernetes: version.Kubernetes,
		Log: a.log.With(podlog.ActorKey, messages.Server.String()),
	}
	if a.cluster != nil {
		c.Notes = append(c.Notes, healthz.Note{Check: "cluster", Says: a.cluster.problems})
		c.Registered = func() api.Registered {
			s := a.cluster.registered.Load()
			return api.Registered{LeaseExpires: s.LeaseExpires, NotReady: s.NotReady}
		}
	}
	c.Notes = append(c.Notes, healthz.Note{Check: "identity", Says: a.identityProblems},
		healthz.Note{Check: "shutdown", Says: a.shutdown.Problems})
	c.CAdvisor, c.CAdvisorAddress = a.cadvisor()
	if address := a.guard.exposure.Observatory; address != "" {
		token := observatory.NewToken(filepath.Join(stateDir(a.node), "observatory-token"))
		c.Observatory = server.Observatory{Address: address, Token: token}
	}
	return c
}

// start starts the tree. The interceptor is a test's; with nil, it is the engine where chaos is enabled.
func (a *Agent) start(interceptor supervisors.Interceptor) error {
	if err := a.listeners.Open(context.Background()); errors.Is(err, server.ErrInUse) {
		return err // anything else may mend itself: the server's actor tries again
	}
	if err := checkReserved(a.node, a.machine.Last()); err != nil {
		return err
	}
	if err := CheckGroups(a.node, a.groups); err != nil {
		return err
	}
	a.cluster.watch(a.node, a.host.Ops, a.log)
	warnOfGaps(a.node, a.host.Node.CgroupV2, a.log)
	if interceptor == nil && a.chaos != nil {
		a.log.Warn("chaos is enabled: playlet chaos may break any actor of this agent")
		interceptor = a.chaos
	}
	system, err := supervisors.Start(supervisors.Options{
		Constructors: a.wire(), Log: a.log, Interceptor: interceptor, Fatal: func(err error) { a.failed <- err },
		WorkContext: a.tracing.WorkContext(),
	})
	if err != nil {
		return err
	}
	a.system = system
	if a.chaos != nil {
		a.chaos.Attach(system)
	}
	a.metrics.Register(system)
	a.tracing.Follow(system.Recorder())
	a.listeners.Attach(system)
	a.figures.Attach(system.Tell)
	a.host.Devices.Notify(func(uid string) { system.Tell(messages.PodAddress(uid), messages.DevicesChanged{UID: uid}) })
	return nil
}

// Close drains the tree, lets the runtime finish what it was asked for, and frees what the process holds. The error names
// what did not stop in time.
func (a *Agent) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	var errs []error
	a.endChaos(ctx)
	if a.system != nil {
		errs = append(errs, a.system.Shutdown(ctx))
	}
	a.tracing.Close(ctx)
	a.cluster.close()
	a.guard.close()
	settle(a.host.Ops, settleTime, a.log)
	a.streams.Close()
	if a.inhibitor != nil {
		errs = append(errs, a.inhibitor.Close())
	}
	if err := a.events.Save(); err != nil {
		a.log.Warn("the last events are not kept on the disk", "reason", err)
	}
	errs = append(errs, a.listeners.Close()) // before the Manager: no plugin registers with one that is closed
	a.host.Devices.Close()
	errs = append(errs, a.client.Close(), a.locks.Close())
	return errors.Join(errs...)
}

// settle refuses new operations and waits for those under way, which the end of the connection would cut off: the runtime
// throws a container away whose start it sees cancelled.
func settle(ops *cri.Operations, limit time.Duration, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := ops.Close(ctx); err != nil {
		log.Warn("operations under way are cut off; the next agent reads what became of them", "operations", ops.InFlight(""))
	}
}

// warnOfGaps logs what the configuration asks for and is not done yet.
func warnOfGaps(node *config.Node, v2 bool, log *slog.Logger) {
	for _, source := range unheard(node) {
		log.Warn("pods of this source are not run yet; pods that are found and that no other source names are left as they are",
			"source", source)
	}
	if len(node.Kubelet.QOSReserved) > 0 && qosReserved(node) == nil {
		log.Warn("without effect: qosReserved needs the feature gate QOSReserved")
	}
	if node.FeatureEnabled("MemoryQoS") && !v2 {
		log.Warn("without effect: the feature gate MemoryQoS needs cgroups of version 2")
	}
	if onlySubmissions(node) {
		log.Warn("no source of pods is configured: submitted pods (playlet run) are run, and others that are found " +
			"are left as they are; --pod-manifest-path names a folder of manifests")
	}
}
