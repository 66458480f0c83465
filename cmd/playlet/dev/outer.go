package dev

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// Options are what the command line says.
type Options struct {
	// Dir is the folder for everything; a temporary one where it is empty.
	Dir string
	// Programs are folders to look in first.
	Programs []string
	// Install lets missing programs be installed.
	Install bool
	// Once ends the run as soon as the sample pod has answered.
	Once bool
	// AdminSocket is the path of the agent's. Where it is empty, DefaultSocket is taken unless another agent owns it.
	AdminSocket, DefaultSocket string
	// Out is where progress goes; the processes below write it to os.Stdout.
	Out io.Writer
}

const (
	// storeDir holds the record of the run there is. It goes with the boot, as what it records does.
	storeDir = "/run/playlet-dev"
	procDir  = "/proc"
	sysDir   = "/proc/sys"
	// patience bounds each wait for something that the kernel is about to do.
	patience = 20 * time.Second
)

// Plan is what the processes of the run need to know. It lies in the run's folder.
type Plan struct {
	Name        string   `json:"name"`
	Programs    Programs `json:"programs"`
	Version     Version  `json:"version"`
	Bridge      string   `json:"bridge"`
	Subnet      string   `json:"subnet"`
	AdminSocket string   `json:"adminSocket"`
	// NodeIP is told to the agent where it cannot find an address of the machine; empty otherwise.
	NodeIP string `json:"nodeIP,omitempty"`
	Once   bool   `json:"once,omitempty"`
	// Temporary says that the folder goes with the run.
	Temporary bool `json:"temporary,omitempty"`
}

// Run does everything of `playlet dev`. It returns when ctx has ended, or the run by itself; the machine is as it was
// then, or the error names what is left. It takes root, and there can be one at a time on a machine.
func Run(ctx context.Context, o Options) (err error) {
	s, undone, err := begin(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close(undone)) }()
	p := NewProgress(o.Out)
	p.Line("A node for trying things out. Ctrl-C ends it and leaves the machine as it was.")
	plan, r, err := prepare(ctx, o, p)
	if err != nil {
		return err
	}
	if err := s.save(r); err != nil {
		return err
	}
	undone = false
	err = errors.Join(ctx.Err(), makeAll(ctx, plan, r))
	if err == nil {
		err = runInit(ctx, s, r)
	}
	cleaned := p.Step("clean-up", func(func(string)) (string, error) { return "the machine is as it was", undo(r) })
	undone = cleaned == nil
	if cleaned != nil {
		cleaned = fmt.Errorf("not everything could be removed (playlet dev --clean tries again): %w", cleaned)
	}
	return errors.Join(err, cleaned)
}

// Clean undoes what a run that was killed has left, and says so.
func Clean(ctx context.Context, o Options) error {
	s, _, err := begin(ctx, o)
	if err != nil {
		return err
	}
	return s.close(true)
}

// begin takes the lock, and undoes what an earlier run has left.
func begin(_ context.Context, o Options) (*store, bool, error) {
	if os.Geteuid() != 0 {
		return nil, false, errors.New("playlet dev takes root, as it starts containerd and makes a network for pods: sudo playlet dev")
	}
	s, err := openStore(storeDir)
	if err != nil {
		return nil, false, err
	}
	r, err := s.load()
	if err != nil {
		return nil, false, errors.Join(err, s.close(false))
	}
	if r == nil {
		return s, true, nil
	}
	err = NewProgress(o.Out).Step("leftovers", func(func(string)) (string, error) {
		return fmt.Sprintf("removed what an earlier run (process %d) had left", r.Outer.PID), undo(r)
	})
	if err == nil {
		err = os.Remove(s.path())
	}
	if err != nil {
		return nil, false, errors.Join(fmt.Errorf("cleaning up after an earlier run: %w", err), s.close(false))
	}
	return s, true, nil
}

// prepare finds out all that a run needs, and makes nothing.
func prepare(ctx context.Context, o Options, p *Progress) (*Plan, *Record, error) {
	programs, err := provide(ctx, o, p)
	if err != nil {
		return nil, nil, err
	}
	plan := &Plan{Programs: programs, Once: o.Once}
	err = p.Step("programs", func(func(string)) (string, error) {
		plan.Version, err = containerdVersion(ctx, programs.Containerd)
		if err == nil && plan.Version.Major == 1 && plan.Version.Minor < 6 {
			err = fmt.Errorf("%s is containerd %s; it takes 1.6 or newer", programs.Containerd, plan.Version.Text)
		}
		return fmt.Sprintf("containerd %s in %s", plan.Version.Text, filepath.Dir(programs.Containerd)), err
	})
	if err != nil {
		return nil, nil, err
	}
	r := &Record{ID: strings.ToLower(rand.Text()[:6])}
	plan.Name = r.Name()
	if err := planFolder(o, plan, r); err != nil {
		return nil, nil, err
	}
	if err := planNetwork(ctx, plan, r); err != nil {
		return nil, nil, err
	}
	r.Boot, err = bootID()
	if err != nil {
		return nil, nil, err
	}
	r.Outer, err = identify(procDir, os.Getpid())
	return plan, r, err
}

func planFolder(o Options, plan *Plan, r *Record) (err error) {
	if r.Dir, r.Temporary, err = newFolder(o.Dir, r.Name()); err != nil {
		return err
	}
	plan.Temporary = r.Temporary
	f := folder(r.Dir)
	there, err := f.manifestsThere()
	if err != nil {
		return err
	}
	if !there {
		r.Sample = sampleManifest
	}
	r.AdminSocket = chooseSocket(o, f)
	plan.AdminSocket = r.AdminSocket
	r.Folders, err = missingFolders(append([]string{f.manifests(), filepath.Dir(r.AdminSocket)}, privateFolders...)...)
	return err
}

// chooseSocket prefers the socket where the sub-commands look, if no other agent is there.
func chooseSocket(o Options, f folder) string {
	switch {
	case o.AdminSocket != "":
		return o.AdminSocket
	case listening(o.DefaultSocket):
		return f.at(adminSock)
	default:
		return o.DefaultSocket
	}
}

func planNetwork(ctx context.Context, plan *Plan, r *Record) (err error) {
	if r.Bridge, err = freeBridge(); err != nil {
		return err
	}
	plan.Bridge = r.Bridge
	taken, err := takenSubnets()
	if err != nil {
		return err
	}
	subnet, err := freeSubnet(taken)
	if err != nil {
		return err
	}
	plan.Subnet = subnet.String()
	routes, err := os.ReadFile("/proc/net/route")
	if err != nil {
		return err
	}
	if !hasDefaultRoute(string(routes)) {
		plan.NodeIP = subnet.Addr().Next().String() // the bridge's
	}
	if r.Sysctls, err = forwardingBefore(sysDir); err != nil {
		return err
	}
	rules, err := iptables{plan.Programs.IPTables}.save(ctx)
	r.Tables, r.Chains = rules.tables, rules.chains()
	return err
}

// makeAll makes what the record says is made on the machine.
func makeAll(ctx context.Context, plan *Plan, r *Record) error {
	if err := makeFolders(r.Folders); err != nil {
		return err
	}
	f := folder(r.Dir)
	if err := f.make(r.Sample); err != nil {
		return err
	}
	text, err := json.MarshalIndent(plan, "", "  ")
	if err != nil {
		return err
	}
	if err := writeFile(f.at(planFile), text, 0o600); err != nil {
		return err
	}
	if err := makeCgroups(r.Name()); err != nil {
		return err
	}
	if len(r.Sysctls) > 0 {
		if err := os.WriteFile(filepath.Join(sysDir, ipForward), []byte("1"), 0); err != nil {
			return err
		}
	}
	return iptables{plan.Programs.IPTables}.admit(ctx, r)
}

func readPlan(dir string) (*Plan, error) {
	data, err := os.ReadFile(folder(dir).at(planFile))
	if err != nil {
		return nil, err
	}
	plan := &Plan{}
	return plan, json.Unmarshal(data, plan)
}

// InitStage and NodeStage are the sub-commands of `playlet dev` that Run starts, with the run's folder as argument.
const (
	InitStage = "init"
	NodeStage = "node"
)

// runInit starts init and waits for it. All processes of its PID namespace are gone before its end is reported. A first
// signal, or the end of ctx, asks it to end; a second signal does not ask.
func runInit(ctx context.Context, s *store, r *Record) error {
	// The kernel ends init when the thread that started it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	defer signal.Stop(signals)
	cmd := exec.Command(self(), "dev", InitStage, r.Dir)
	cmd.Args[0] = os.Args[0]
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID,
		Pdeathsig:  syscall.SIGKILL,
		Setpgid:    true, // Ctrl-C is for us; we pass it on
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("new namespaces: %w", err)
	}
	stopped := make(chan struct{})
	go pass(ctx, signals, stopped, cmd.Process)
	identity, err := identify(procDir, cmd.Process.Pid)
	if err == nil {
		r.Init = identity
		err = s.save(r)
	}
	if err != nil {
		err = errors.Join(err, cmd.Process.Kill())
	}
	ended := cmd.Wait()
	close(stopped)
	if err != nil {
		return err
	}
	return outcome(ctx, folder(r.Dir), ended)
}

// self is this program, under its name where that still leads to it.
func self() string {
	const link = "/proc/self/exe"
	path, err := os.Executable()
	if err != nil {
		return link
	}
	a, err1 := os.Stat(path)
	b, err2 := os.Stat(link)
	if err1 != nil || err2 != nil || !os.SameFile(a, b) {
		return link
	}
	return path
}

// pass asks the process to end, at the first signal or when ctx has ended (which one signal may do both), and kills it
// at the second signal.
func pass(ctx context.Context, signals <-chan os.Signal, stopped <-chan struct{}, p *os.Process) {
	done := ctx.Done()
	for count := 0; ; {
		select {
		case <-stopped:
			return
		case <-done:
			done = nil
		case <-signals:
			count++
		}
		if count > 1 {
			_ = p.Kill() // it may have ended meanwhile
		} else {
			_ = p.Signal(syscall.SIGTERM) // likewise
		}
	}
}

// outcome is how node ended: what it wrote, and else how its process did.
func outcome(ctx context.Context, f folder, ended error) error {
	text, err := os.ReadFile(f.at(outcomeFile))
	switch {
	case err == nil && len(text) > 0:
		return errors.New(string(text))
	case err == nil:
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return err
	case ctx.Err() != nil:
		return nil // it was not given the time
	case ended != nil:
		return fmt.Errorf("the node has ended: %w", ended)
	default:
		return errors.New("the node has ended without a word")
	}
}

func bootID() (string, error) {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(data)), err
}
