// Package agent is the process that runs pods. It creates everything that outlives the actors (new.go), binds each row of the
// tree to the constructor of its actor (wire.go), and runs until it is stopped.
package agent

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

	"k8s.io/klog/v2"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"k8s.io/utils/ptr"

	"github.com/playlet-dev/playlet/actors/pod"
	"github.com/playlet-dev/playlet/actors/resources"
	"github.com/playlet-dev/playlet/actors/server"
	"github.com/playlet-dev/playlet/actors/volumes/kinds"
	"github.com/playlet-dev/playlet/cmd/playlet/agent/chains"
	"github.com/playlet-dev/playlet/cmd/playlet/agent/locks"
	"github.com/playlet-dev/playlet/cmd/playlet/agent/memory"
	"github.com/playlet-dev/playlet/cmd/playlet/agent/notify"
	"github.com/playlet-dev/playlet/cmd/playlet/agent/podlog"
	"github.com/playlet-dev/playlet/cmd/playlet/cli"
	"github.com/playlet-dev/playlet/cmd/playlet/version"
	"github.com/playlet-dev/playlet/config"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
	recovery "github.com/playlet-dev/playlet/supervisors/guard"
)

// drainTime bounds how long the tree is given to stop. No container is touched by it.
const drainTime = 10 * time.Second

// settleTime bounds the wait for runtime operations in progress at the end. A start needs about a second. A stop with a long
// grace period, or a pull, may need far longer, and is continued by the next agent.
const settleTime = 5 * time.Second

// Agent is the process: the state that its actors share and that outlives them, and their tree.
type Agent struct {
	node        *config.Node
	log         *slog.Logger
	locks       locks.Locks
	cluster     *cluster // nil on a standalone node
	machine     *machine
	runtime     *containerRuntime
	host        *pod.Host
	observatory *observatory
	guard       *guard // of port 10250
	listeners   *server.Listeners
	stopPlugins func() // ends the watch for plugins; nil: it has not begun
	system      *supervisors.System
	failed      chan error // the root of the tree has given up
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
	_ = place(a.node, a.machine.groups) // keep logs failures; memory is charged to the cgroup of the process at the time of use
	if err := a.start(nil); err != nil {
		return errors.Join(err, a.Close())
	}
	a.log.Info("playlet is running", "version", version.Playlet(), "node", a.node.NodeName,
		"runtime", a.node.Kubelet.ContainerRuntimeEndpoint, "manifests", a.node.Kubelet.StaticPodPath, "socket",
		a.node.AdminSocket)
	return a.live(ctx, lock)
}

// keepEvery is the interval at which host settings changed by others are restored, as in the kubelet.
const keepEvery = time.Minute

// keep returns a function that calls do at once and then at each interval, until its ctx ends. It logs a failure unless the
// previous call failed with the same error.
func keep(every time.Duration, log *slog.Logger, failed string, do func(context.Context) error) func(context.Context) {
	return func(ctx context.Context) {
		for said := ""; ; {
			err := do(ctx)
			switch {
			case err == nil:
				said = ""
			case err.Error() != said && ctx.Err() == nil:
				said = err.Error()
				log.Warn(failed, "error", err)
			}
			if !cli.Pause(ctx, every) {
				return
			}
		}
	}
}

// live reports to the service manager until the agent is to end, and then closes it.
func (a *Agent) live(ctx context.Context, lock *locks.File) error {
	manager := notify.New(a.observatory.board, a.system, a.log)
	reporting, stopReporting := context.WithCancel(ctx)
	defer stopReporting()
	var reports sync.WaitGroup
	start := func(what string, run func(context.Context)) {
		reports.Go(func() { recovery.GoOn(reporting, a.log, what, run) })
	}
	start("reports to the service manager", manager.Run)
	start("giving memory back", memory.GiveBack)
	start("keeping processes in their cgroups", keep(keepEvery, a.log,
		"processes are not in the cgroups of kubeletCgroups and systemCgroups", func(context.Context) error {
			return place(a.node, a.machine.groups)
		}))
	if ptr.Deref(a.node.Kubelet.MakeIPTablesUtilChains, true) {
		start("keeping chains of iptables", keep(keepEvery, a.log,
			"the chains of iptables that Kubernetes makes are not all there", chains.Keep))
	}
	start("writing the flight recorder on SIGUSR1", func(ctx context.Context) {
		dumpOnSignal(ctx, a.system.Recorder(), filepath.Join(stateDir(a.node), "flight-recorder.log"), a.log)
	})
	if a.cluster == nil { // else registration looks for them
		start("following the addresses", keep(a.node.Kubelet.NodeStatusUpdateFrequency.Duration, a.log,
			"the node's addresses stay as they were", a.machine.addresses.look))
	}
	once := make(chan error, 1)
	if a.node.Kubelet.RunOnce {
		reports.Go(func() {
			once <- recovery.Call(a.log, "run-once", func() error {
				return runOnce(reporting, a.observatory.board, onceLimit, a.log)
			})
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

// untilEnd blocks until the agent has to stop, and returns the reason. An error makes the process fail.
func (a *Agent) untilEnd(ctx context.Context, lock *locks.File, once <-chan error) (why string, err error) {
	select {
	case <-ctx.Done():
		signal.Reset(os.Interrupt, syscall.SIGTERM)
		a.log.Info("stopping; containers keep running; a second signal ends the agent at once")
		return "stopping", nil
	case err := <-once:
		return "the pods were run once", err
	case <-lock.Contention():
		a.log.Warn("another process has opened the lock file; stopping, containers keep running", "file", a.node.LockFile)
		return "another process has opened the lock file", nil
	case err := <-a.failed:
		return messages.OneLine(err), fmt.Errorf("giving up, containers go on running: %w", err)
	}
}

// start starts the tree. The interceptor is a test's; with nil, it is the engine where chaos is enabled.
func (a *Agent) start(interceptor supervisors.Interceptor) error {
	if err := a.listeners.Open(context.Background()); errors.Is(err, server.ErrInUse) {
		return err // anything else may mend itself: the server's actor tries again
	}
	if err := checkReserved(a.node, a.machine.reader.Last()); err != nil {
		return err
	}
	if err := CheckGroups(a.node, a.machine.groups); err != nil {
		return err
	}
	a.cluster.watch(a.node, a.host.Ops, a.log)
	if a.cluster != nil && a.cluster.certs != nil {
		a.observatory.metrics.Register(a.cluster.certs)
	}
	a.host.Claims.Start()
	a.stopPlugins = a.watchPlugins()
	warnOfGaps(a.node, a.host.Node.CgroupV2, a.log)
	if engine := a.observatory.chaos; interceptor == nil && engine != nil {
		a.log.Warn("chaos is enabled: playlet chaos may break any actor of this agent")
		interceptor = engine
	}
	system, err := supervisors.Start(supervisors.Options{
		Constructors: a.wire(), Log: a.log, Interceptor: interceptor, Fatal: func(err error) { a.failed <- err },
		WorkContext: a.observatory.tracing.WorkContext(),
	})
	if err != nil {
		return err
	}
	a.system = system
	a.observatory.attach(system)
	a.listeners.Attach(system)
	a.host.Devices.Notify(func(uid string) { system.Tell(messages.PodAddress(uid), messages.DevicesChanged{UID: uid}) },
		func() { system.Tell(messages.Pods, messages.DevicesListed{}) })
	a.host.Claims.Notify(func(uid string) { system.Tell(messages.PodAddress(uid), messages.DevicesChanged{UID: uid}) },
		func() { system.Tell(messages.Resources, messages.ClaimDriversChanged{}) })
	return nil
}

// watchPlugins watches for plugins that register by a socket, until stop is called. Each kind of plugin is one line.
func (a *Agent) watchPlugins() (stop func()) {
	handlers := map[string]resources.PluginHandler{registration.DevicePlugin: a.host.Devices.Registry()}
	if a.cluster != nil {
		handlers[registration.DRAPlugin] = a.host.Claims.Registry()
		handlers[registration.CSIPlugin] = a.cluster.storage.Drivers
	}
	w := resources.PluginWatcher{Dir: filepath.Join(a.node.RootDir, "plugins_registry"), Handlers: handlers,
		Retry: kinds.RetryPlugin, Log: a.log.With(podlog.ActorKey, messages.Resources.String())}
	return w.Start()
}

// warnOfGaps logs configured features that are not implemented yet.
func warnOfGaps(node *config.Node, v2 bool, log *slog.Logger) {
	for _, source := range unheard(node) {
		log.Warn("pods of this source are not supported yet; existing pods that no other source lists are left alone",
			"source", source)
	}
	if len(node.Kubelet.QOSReserved) > 0 && qosReserved(node) == nil {
		log.Warn("qosReserved has no effect: it needs the feature gate QOSReserved")
	}
	if node.FeatureEnabled("MemoryQoS") && !v2 {
		log.Warn("the feature gate MemoryQoS has no effect: it needs cgroup v2")
	}
	if onlySubmissions(node) {
		log.Warn("no source of pods is configured: submitted pods (playlet run) are run, and others that are found " +
			"are left as they are; --pod-manifest-path names a folder of manifests")
	}
}

// Close drains the tree, lets the runtime finish the operations in progress, and releases the resources of the process. The
// error names the parts that did not stop in time.
func (a *Agent) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	var errs []error
	a.observatory.endChaos(ctx, a.system, a.log)
	if a.system != nil {
		errs = append(errs, a.system.Shutdown(ctx))
	}
	a.observatory.close(ctx, a.log)
	if a.stopPlugins != nil {
		a.stopPlugins()
	}
	a.cluster.close()
	a.guard.close()
	settle(a.host.Ops, settleTime, a.log)
	a.runtime.streams.Close()
	errs = append(errs, a.machine.close(), a.listeners.Close())
	a.host.Devices.Close() // after the listeners: no plugin registers with a Manager that is closed
	a.host.CPUs.Close()
	a.host.Memory.Close()
	a.host.Claims.Close()
	errs = append(errs, a.runtime.client.Close(), a.locks.Close())
	return errors.Join(errs...)
}

// settle rejects new operations and waits for those in progress. Closing the connection would cancel them, and the runtime
// discards a container whose start is cancelled.
func settle(ops *cri.Operations, limit time.Duration, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := ops.Close(ctx); err != nil {
		log.Warn("operations in progress are cut off; the next agent will read their results", "operations", ops.InFlight(""))
	}
}
