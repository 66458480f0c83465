// Package isolate runs a program, such as a test binary, in namespaces of its own (mount, network, PID, UTS, IPC,
// cgroup), so that containerd, shims, containers, bridges, mounts and cgroups that it makes cannot reach the machine
// around it, and are gone when it is gone, even by kill -9.
//
// The program is started three times over: the outer process, which stays on the machine, makes the cgroups and cleans
// up; the init, PID 1 of the namespaces, which sets them up and reaps; and the body, which does the work.
//
// Inside, `/` is mounted shared, /run is empty, changes below /var/lib and /var/log are forgotten, the host name is node0, the
// bridge node0 has the address NodeIP, IPv4 is forwarded, and there is no way out to another network.
package isolate

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"

	"github.com/playlet-dev/playlet/cmd/playlet/dev/namespaces"
)

const (
	// NodeIP is the address of the node inside: not loopback, as a node address must not be.
	NodeIP = "192.168.77.1"
	// HostName is the name of the host inside, and of its bridge.
	HostName = "node0"

	stageVar = "PLAYLET_E2E_STAGE"
	dirVar   = "PLAYLET_E2E_DIR"
	keepVar  = "PLAYLET_E2E_KEEP"

	// codeFailed is the exit code for a failure of the isolation itself.
	codeFailed = 3
)

// Inside reports whether this process runs in the namespaces.
func Inside() bool { return os.Getenv(stageVar) == "body" }

// Dir is a directory of this run for whatever the body makes; it is removed at the end, unless $PLAYLET_E2E_KEEP is
// set. Its path is short enough for unix sockets. Empty outside.
func Dir() string {
	if !Inside() {
		return ""
	}
	return os.Getenv(dirVar)
}

// Run calls prepare on the machine, with the result of Dir inside, then body inside, and returns body's exit code, or 3 if the
// isolation failed. Work that needs a network, such as downloading modules, belongs in prepare. It needs root. It is called at
// the very start of main or TestMain, as the program starts again inside:
//
//	func TestMain(m *testing.M) { os.Exit(isolate.Run(prepare, m.Run)) }
func Run(prepare func(dir string) error, body func() int) int {
	var code int
	var err error
	switch stage := os.Getenv(stageVar); stage {
	case "":
		code, err = outer(prepare)
	case "init":
		code, err = initial()
	case "body":
		return body()
	default:
		err = fmt.Errorf("%s=%q", stageVar, stage)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "isolate:", err)
		return max(code, codeFailed)
	}
	return code
}

// groupName names the cgroup of a run, in every hierarchy. Inside, it is the root of them.
func groupName(id string) string { return "playlet-e2e-" + id }

func removeCgroups(id string) error { return namespaces.RemoveCgroups(groupName(id), nil, nil) }

// base holds a directory per run, each with a file that is locked as long as its outer process lives.
func base() string { return filepath.Join(os.TempDir(), "playlet-e2e") }

func outer(prepare func(dir string) error) (code int, err error) {
	if os.Geteuid() != 0 {
		return codeFailed, errors.New("this takes root")
	}
	id := strconv.Itoa(os.Getpid())
	dir := filepath.Join(base(), id)
	lock, err := claim(dir)
	if err != nil {
		return codeFailed, err
	}
	defer lock.Close() //nolint:errcheck // the kernel gives the lock back anyway
	if err := prepare(dir); err != nil {
		return codeFailed, errors.Join(err, discard(dir))
	}
	if err := namespaces.MakeCgroups(groupName(id), nil); err != nil {
		if !errors.Is(err, fs.ErrExist) { // else they are of another run, from a PID namespace of its own
			err = errors.Join(err, removeCgroups(id))
		}
		return codeFailed, errors.Join(err, discard(dir))
	}
	code, err = runInit(dir)
	if os.Getenv(keepVar) != "" {
		fmt.Fprintln(os.Stderr, "isolate: kept:", dir)
		return code, errors.Join(err, removeCgroups(id))
	}
	return code, errors.Join(err, clean(dir))
}

// runInit starts this program as PID 1 of new namespaces and waits for it. All processes of a PID namespace are gone
// before the end of its PID 1 is reported.
func runInit(dir string) (int, error) {
	// The kernel ends the child when the *thread* that started it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), stageVar+"=init", dirVar+"="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
		Pdeathsig:  syscall.SIGKILL,
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT)
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		return codeFailed, fmt.Errorf("namespaces: %w", err)
	}
	done := make(chan struct{})
	defer close(done)
	go func() {
		for {
			select {
			case s := <-signals:
				_ = cmd.Process.Signal(s) // gone already
			case <-done:
				return
			}
		}
	}()
	err := cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return codeFailed, err
	}
	return exitCode(cmd.ProcessState.Sys().(syscall.WaitStatus)), nil
}

// exitCode is the shell's: 128 and the signal's number for a process that a signal ended.
func exitCode(s syscall.WaitStatus) int {
	if s.Signaled() {
		return 128 + int(s.Signal())
	}
	return s.ExitStatus()
}

// claim makes the directory of a run and locks it for as long as this process lives. Before, it cleans up after runs
// that were killed; one process at a time does so, as a directory is not locked yet at the moment it is made.
func claim(dir string) (*os.File, error) {
	if err := os.Mkdir(base(), 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	if err := namespaces.OwnFolder(base()); err != nil {
		return nil, err
	}
	if err := os.Chmod(base(), 0o711); err != nil { // runc enters it with the IDs of a pod with a user namespace
		return nil, err
	}
	turn, err := lockFile(filepath.Join(base(), "lock"), 0)
	if err != nil {
		return nil, err
	}
	defer turn.Close() //nolint:errcheck // the kernel gives the lock back anyway
	if err := sweep(base()); err != nil {
		return nil, fmt.Errorf("cleaning up after an earlier run: %w", err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	return lockFile(filepath.Join(dir, "lock"), syscall.LOCK_NB)
}

func lockFile(path string, how int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|how)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, syscall.EINTR) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
		}
	}
}

// sweep removes the leftovers of killed runs: their directories and cgroups. Their processes, mounts and network ended with their
// namespaces.
func sweep(base string) error {
	entries, err := os.ReadDir(base)
	if err != nil {
		return err
	}
	for _, e := range entries {
		dir := filepath.Join(base, e.Name())
		if !e.IsDir() || alive(dir) {
			continue
		}
		fmt.Fprintln(os.Stderr, "isolate: cleaning up after an earlier run:", dir)
		if err := clean(dir); err != nil {
			return err
		}
	}
	return nil
}

func alive(dir string) bool {
	f, err := os.Open(filepath.Join(dir, "lock"))
	if err != nil {
		return false
	}
	defer f.Close() //nolint:errcheck // only looked at
	return syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB) != nil
}

// clean removes the cgroups and the directory of an ended run.
func clean(dir string) error {
	if err := removeCgroups(filepath.Base(dir)); err != nil {
		return err
	}
	return discard(dir)
}

// discard removes a run's folder.
func discard(dir string) error {
	if err := namespaces.RefuseMounts(dir); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}
