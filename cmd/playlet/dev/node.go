package dev

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/actors/server/observatory"
	"github.com/playlet-dev/playlet/cmd/playlet/dev/containerd"
	"github.com/playlet-dev/playlet/cmd/playlet/dev/devimages"
	"github.com/playlet-dev/playlet/cmd/playlet/dev/process"
	"github.com/playlet-dev/playlet/cmd/playlet/dev/progress"
	"github.com/playlet-dev/playlet/cri"
)

// Agent is the agent, running in this process.
type Agent struct {
	// NodeName is part of static pods' names.
	NodeName string
	// Failed gives the reason when the agent gives up.
	Failed <-chan error
	// Close stops the agent; containers go on.
	Close func() error
}

// Hooks are the functions that the command passes to node.
type Hooks struct {
	// Start starts the agent with a command line, its log going to log.
	Start func(args []string, log io.Writer) (*Agent, error)
	// Status puts a pod's status in a few words: "Running 1/1".
	Status func(*api.Pod) string
	// Command runs one of the program's commands with these arguments, with output to out.
	Command func(ctx context.Context, args []string, out io.Writer) error
	// Notes returns lines about problems of the node.
	Notes func(*api.Node) []string
}

// node is the process that runs the visible parts.
type node struct {
	Hooks
	page     string // the address of the web page, with its token; empty: none
	plan     *Plan
	folder   folder
	progress *progress.Progress
	registry *devimages.Registry
	runtime  *supervisedProgram
	client   *cri.Client
	agent    *Agent
	url      string         // of the sample, once it has answered
	entered  chan struct{}  // a line was typed; closed: none will be
	closers  []func() error // last first
}

// Node runs registry, containerd, agent and pods until ctx ends or, with Plan.Once, the sample has answered. How it went
// is the outcome.
func Node(ctx context.Context, dir string, h Hooks) error {
	if os.Getppid() != 1 {
		return errByHand
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	entered := make(chan struct{}, 16)
	go func() {
		readEntered(stagePipe(), entered)
		cancel()
	}()
	// When the output is closed, the run ends in order; the signal would end it half-way.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	// tostop on the terminal would otherwise stop this process, which is not in the foreground process group.
	signal.Ignore(syscall.SIGTTOU)
	plan, err := readPlan(dir)
	if err != nil {
		return writeOutcome(dir, err)
	}
	n := &node{Hooks: h, plan: plan, folder: folder(dir), progress: progress.New(os.Stdout), entered: entered}
	n.progress.Unread = cancel
	err = n.start(ctx)
	if err == nil {
		err = n.stay(ctx)
	}
	switch {
	case ctx.Err() != nil:
		err = unlessEnded(ctx, plan.Once, nil) // whatever was cut short
	case err != nil:
		n.printLogs(os.Stderr)
	}
	stopped := n.progress.Step("stopping", func(waiting func(string)) (string, error) { return n.stop(waiting) })
	return writeOutcome(dir, errors.Join(err, stopped))
}

func (n *node) start(ctx context.Context) error {
	for _, step := range []struct {
		name string
		do   func(context.Context, func(string)) (string, error)
	}{
		{"images", n.startRegistry},
		{"containerd", n.startContainerd},
		{"agent", n.startAgent},
		{"pod " + sampleName, n.awaitSample},
		{"pods", n.runPods},
	} {
		if step.name == "pods" && len(n.plan.Pods) == 0 {
			continue
		}
		err := n.progress.Step(step.name, func(waiting func(string)) (string, error) { return step.do(ctx, waiting) })
		if err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return nil
}

// runPods submits the manifests that were named, as playlet run does.
func (n *node) runPods(ctx context.Context, _ func(string)) (string, error) {
	args := []string{"run", "--admin-socket=" + n.plan.AdminSocket}
	for _, file := range n.plan.Pods {
		args = append(args, "-f", file)
	}
	var out bytes.Buffer
	err := n.Command(ctx, args, &out)
	text := strings.TrimSpace(out.String())
	if err != nil && text != "" {
		err = fmt.Errorf("%w\n%s", err, text)
	}
	return strings.ReplaceAll(text, "\n", ", "), err
}

func (n *node) startRegistry(ctx context.Context, _ func(string)) (string, error) {
	registry, err := devimages.StartRegistry(context.WithoutCancel(ctx))
	if err != nil {
		return "", err
	}
	n.registry = registry
	n.closers = append(n.closers, registry.Close)
	if busybox := n.plan.Programs.Busybox; busybox != "" {
		if err := n.addShell(ctx, busybox); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%[1]s/pause:1 and %[1]s/hello:1, no network needed", registryHost), nil
}

// addShell gives the sample's image a shell.
func (n *node) addShell(ctx context.Context, busybox string) error {
	program, err := os.ReadFile(busybox)
	if err != nil {
		return err
	}
	applets, err := exec.CommandContext(ctx, busybox, "--list").Output()
	if err != nil {
		return fmt.Errorf("%s --list: %w", busybox, err)
	}
	image, err := devimages.HelloWithShell(program, strings.Fields(string(applets)))
	if err != nil {
		return err
	}
	return n.registry.Push(string(devimages.Hello), image)
}

func (n *node) startContainerd(ctx context.Context, waiting func(string)) (string, error) {
	if err := n.configureContainerd(); err != nil {
		return "", err
	}
	f, programs := n.folder.containerd(), n.plan.Programs
	log, err := os.OpenFile(n.folder.at(containerdLog), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return "", err
	}
	n.closers = append(n.closers, log.Close)
	n.client, err = cri.Dial(cri.Options{RuntimeEndpoint: "unix://" + f.Socket()})
	if err != nil {
		return "", err
	}
	n.closers = append(n.closers, n.client.Close)
	n.runtime = &supervisedProgram{say: n.printEvent, command: func() *exec.Cmd {
		cmd := f.Command(programs.Containerd, os.Environ(), programs.Shim, programs.Runc, programs.IPTables) // with our proxies
		cmd.Stdout, cmd.Stderr = log, log
		return cmd
	}}
	n.runtime.start()
	if err := awaitRuntime(ctx, n.client, n.runtime, waiting); err != nil {
		return "", err
	}
	return "ready, pods get addresses of " + n.plan.Subnet, nil
}

// configureContainerd writes all that containerd reads.
func (n *node) configureContainerd() error {
	return n.folder.containerd().Write(containerd.Settings{
		Major: n.plan.Version.Major, Minor: n.plan.Version.Minor, Runc: n.plan.Programs.Runc, Handlers: []string{"runc"},
		CNIBins: []string{n.plan.Programs.CNIDir}, Sandbox: registryHost + "/pause:1", KeepScore: !canLowerScore(),
	}, containerd.Network{
		Version: "1.0.0", Name: n.plan.Name, Bridge: n.plan.Bridge, Subnet: n.plan.Subnet, Masquerade: true,
	}, n.registry.Addr, registryHost)
}

// canLowerScore reports whether this process may lower oom_score_adj (proc_pid_oom_score_adj(5)).
func canLowerScore() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return false
	}
	return data[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0
}

func (n *node) startAgent(ctx context.Context, waiting func(string)) (string, error) {
	port, err := freePort(ctx, 10248)
	if err != nil {
		return "", err
	}
	config, err := kubeletYAML(n.folder, port, resolvConf())
	if err != nil {
		return "", err
	}
	if err := writeFile(n.folder.at(kubeletConf), []byte(config), 0o644); err != nil {
		return "", err
	}
	log, err := os.OpenFile(n.folder.at(agentLog), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return "", err
	}
	n.closers = append(n.closers, log.Close)
	args := []string{
		"--config=" + n.folder.at(kubeletConf), "--root-dir=" + n.folder.at(nodeFolder),
		"--cert-dir=" + n.folder.at(nodeFolder) + "/pki", "--admin-socket=" + n.plan.AdminSocket,
		"--log-links-dir=" + n.folder.at(logLinksFolder),
	}
	args = append(args, "--object-dir="+cmp.Or(n.plan.ObjectDir, n.folder.at(objectsFolder)),
		fmt.Sprintf("--enable-chaos=%t", !n.plan.NoChaos))
	if n.plan.Page >= 0 {
		page, err := freePort(ctx, n.plan.Page)
		if err != nil {
			return "", err
		}
		args = append(args, fmt.Sprintf("--observatory-address=127.0.0.1:%d", page))
	}
	if n.plan.NodeIP != "" {
		args = append(args, "--node-ip="+n.plan.NodeIP)
	}
	if n.agent, err = n.Start(args, log); err != nil {
		return "", err
	}
	if err := n.awaitAgent(ctx, waiting); err != nil {
		return "", err
	}
	n.page = n.pageAddress(ctx)
	return fmt.Sprintf("node %s, health on http://127.0.0.1:%d/healthz", n.agent.NodeName, port), nil
}

// pageAddress is the address of the web page with its token; empty where there is none.
func (n *node) pageAddress(ctx context.Context) string {
	if n.plan.Page < 0 {
		return ""
	}
	at, err := api.NewClient(n.plan.AdminSocket).Observatory(ctx)
	if err != nil {
		return ""
	}
	token, err := observatory.ReadToken(at.TokenFile)
	if err != nil {
		return ""
	}
	return (&url.URL{Scheme: "http", Host: at.Address, Path: "/", RawQuery: "token=" + token}).String()
}

// awaitAgent waits until the runtime and all sources have reported to the agent.
func (n *node) awaitAgent(ctx context.Context, waiting func(string)) error {
	ctx, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	err := n.watch(ctx, func(now *api.Pods) error {
		if now.Node.Runtime.Ready && len(now.Node.Unheard) == 0 {
			return errSeen
		}
		waiting(strings.Join(n.Notes(&now.Node), "; "))
		return nil
	})
	if errors.Is(err, errSeen) {
		return nil
	}
	return errors.Join(errors.New("it does not get ready"), err)
}

// freePort returns the requested port of the loopback address if it is free, or else another one.
func freePort(ctx context.Context, wanted int) (int, error) {
	for _, port := range []int{wanted, 0} {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", fmt.Sprint("127.0.0.1:", port))
		if err != nil {
			continue
		}
		return l.Addr().(*net.TCPAddr).Port, l.Close()
	}
	return 0, errors.New("no port of 127.0.0.1 is free for health checks")
}

// stop ends everything in the reverse order. Remaining processes end with the namespaces.
func (n *node) stop(waiting func(string)) (string, error) {
	var errs []error
	if n.agent != nil {
		waiting("the agent")
		errs = append(errs, n.agent.Close())
	}
	if n.runtime != nil {
		waiting("pods")
		errs = append(errs, removePods(n.client))
		waiting("containerd")
		n.runtime.close()
	}
	for i := len(n.closers) - 1; i >= 0; i-- {
		errs = append(errs, n.closers[i]())
	}
	return "pods, agent, containerd", errors.Join(errs...)
}

// printLogs shows the ends of the logs, which go with the folder.
func (n *node) printLogs(w io.Writer) {
	for _, name := range []string{containerdLog, agentLog} {
		if text, err := os.ReadFile(n.folder.at(name)); err == nil && len(text) > 0 {
			fmt.Fprintf(w, "last lines of %s:\n%s\n", name, process.Tail(string(text), 8))
		}
	}
}
