package agent

import (
	"errors"
	"io"
	"log/slog"

	"github.com/spf13/pflag"

	"github.com/playlet-dev/playlet/actors/eviction"
	"github.com/playlet-dev/playlet/actors/objects"
	"github.com/playlet-dev/playlet/actors/server"
	"github.com/playlet-dev/playlet/actors/stats"
	"github.com/playlet-dev/playlet/cmd/playlet/agent/locks"
	"github.com/playlet-dev/playlet/cmd/playlet/agent/podlog"
	"github.com/playlet-dev/playlet/config"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/chaos"
)

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
	a := &Agent{node: node, log: log, failed: make(chan error, 1)}
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
	place, err := openPlacement(node, log)
	if err != nil {
		return nil, err
	}
	if a.cluster, err = dialCluster(node, log); err != nil {
		return nil, err
	}
	a.machine = newMachine(node, a.cluster, log)
	if a.guard, err = openGuard(node, a.cluster, a.machine.addresses, log); err != nil {
		return nil, err
	}
	if a.observatory, err = newObservatory(node, names, &a.guard.credentials, log); err != nil {
		return nil, err
	}
	if a.runtime, err = dialRuntime(node, a.observatory, providers, log); err != nil {
		return nil, err
	}
	board := a.observatory.board
	a.machine.scales = eviction.Places{
		Proc: procDir, Cgroups: cgroupDir, RootDir: node.RootDir, PodLogsDir: node.Kubelet.PodLogsDir, Images: a.runtime.client,
		Kubepods: kubepods(node.Kubelet, a.runtime.state),
	}.Meter()
	a.host = newHost(node, facts, dns, a.runtime, a.machine, place, a.cluster, log)
	a.observatory.figures = stats.NewCollector(figureOptions(node, board, a.runtime, a.cluster))
	if node.EnableChaos {
		tell := func(to messages.Address, msg any) { a.system.Tell(to, msg) }
		a.observatory.chaos = chaos.New(chaosOptions(node, board, tell))
	}
	a.listeners = server.NewListeners(served(node, a.host, a.runtime.state, a.machine, a.cluster, a.guard, a.observatory, log))
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
