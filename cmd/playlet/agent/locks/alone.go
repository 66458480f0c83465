package locks

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/playlet-dev/playlet/config"
	"github.com/playlet-dev/playlet/cri"
)

// Locks is the set of locks that exclude a second agent from the root folder and from the runtime, whose pods it would end. The
// kernel releases them when the process ends in any way.
type Locks []*os.File

// Close releases the locks.
func (h Locks) Close() error {
	var errs []error
	for _, f := range h {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// RuntimeSuffix is appended to the name of a runtime's socket for the name of its lock. The file is never removed: a removal
// while another agent opens it would admit two agents.
const RuntimeSuffix = ".playlet.lock"

// rootLock returns the path of a root folder's lock. The file exists if an agent has run with this root folder.
func rootLock(rootDir string) string { return filepath.Join(rootDir, "playlet", "lock") }

// Take takes the agent's locks and makes its folders. Another agent's lock is an error that names its process, as is a running
// kubelet. No folder is made then.
func Take(node *config.Node, log *slog.Logger) (held Locks, err error) {
	defer func() {
		if err != nil {
			held, err = nil, errors.Join(unwritable(node.RootDir, err), held.Close())
		}
	}()
	add := func(lock *os.File, err error) error {
		if lock != nil {
			held = append(held, lock)
		}
		return err
	}
	root := func() error { return add(lockAlone(rootLock(node.RootDir), "--root-dir "+node.RootDir)) }
	_, fresh := os.Stat(rootLock(node.RootDir))
	if fresh == nil { // else no agent has run there, and its folder is made once the runtime is free
		if err := root(); err != nil {
			return held, err
		}
	}
	if err := add(lockRuntime(node.Kubelet.ContainerRuntimeEndpoint, log)); err != nil {
		return held, err
	}
	if err := noKubelet(node, "/proc", kubeletWait); err != nil {
		return held, err
	}
	if err := prepareFolders(node); err != nil || fresh == nil {
		return held, err
	}
	err = root()
	return held, err
}

// unwritable explains an error that was caused by a full or read-only disk.
func unwritable(rootDir string, err error) error {
	failed, ok := errors.AsType[*fs.PathError](err)
	if !ok || !errors.Is(err, unix.EROFS) && !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) {
		return err
	}
	if failed.Path == rootDir || strings.HasPrefix(failed.Path, rootDir+"/") {
		return fmt.Errorf("the root folder %s cannot be written: %w; make room there, have it mounted writable, or name another "+
			"(--root-dir)", rootDir, failed.Err)
	}
	return fmt.Errorf("%s cannot be written: %w", failed.Path, failed.Err)
}

// lockRuntime takes a runtime's lock. The lock is beside the socket, with symbolic links resolved. If nothing can be written
// there, lockRuntime logs that and returns nil.
func lockRuntime(endpoint string, log *slog.Logger) (*os.File, error) {
	socket, err := cri.SocketPath(endpoint)
	if err != nil {
		return nil, err
	}
	if at, err := filepath.EvalSymlinks(socket); err == nil { // else it is not there yet
		socket = at
	} else if err := os.Mkdir(filepath.Dir(socket), 0o711); err != nil && !errors.Is(err, fs.ErrExist) {
		// An agent may begin before its runtime has made this folder, after a boot.
		log.Debug("the folder of the runtime's socket does not exist", "error", err)
	}
	lock, err := lockAlone(socket+RuntimeSuffix, "runtime "+endpoint)
	if errors.Is(err, unix.EROFS) || errors.Is(err, unix.ENOENT) {
		log.Warn("cannot create a lock beside the runtime's socket; do not start a second agent with this runtime", "error", err)
		return nil, nil
	}
	return lock, err
}

// lockAlone takes a lock and writes its holder into the file.
func lockAlone(path, what string) (*os.File, error) {
	f, err := openPrivate(path)
	if err != nil {
		return nil, fmt.Errorf("lock file: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		text, _ := io.ReadAll(io.LimitReader(f, 4096))
		return nil, errors.Join(fmt.Errorf("another playlet runs with the same %s: %s; end that one, or give this one its own",
			what, holderIn(string(text), pidNamespace())), f.Close())
	} else if err != nil {
		return nil, errors.Join(fmt.Errorf("lock file %s: %w", path, err), f.Close())
	}
	holder := fmt.Sprintf("PID %d, %s\n%s\n", os.Getpid(), strings.Join(config.CommandLine(os.Args), " "), pidNamespace())
	_ = f.Truncate(0)
	_, _ = f.WriteString(holder) // a full disk keeps no agent from its pods
	return f, nil
}

// pidNamespace names the PID namespace of this process; empty where it is not known.
func pidNamespace() string {
	name, _ := os.Readlink("/proc/self/ns/pid")
	return name
}

// holderIn returns the holder that is written in a lock, for a reader in the given PID namespace. In another namespace than the
// holder's, the PID would name another process or none.
func holderIn(text, namespace string) string {
	holder, theirs, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if pid, command, found := strings.Cut(holder, ", "); found && theirs != "" && theirs != namespace {
		return fmt.Sprintf("%s of the PID namespace %s, and not of this one, %s", pid, theirs, command)
	}
	return holder
}

// Foreign returns a function that reports whether a sandbox or container with this root folder as its mark belongs to another
// agent. Its pods are not ended even while that agent is down: it may be about to restart. They belong to this agent once that
// agent's lock file is removed. The folder itself has to stay: running pods have their volumes there.
func Foreign(rootDir string, log *slog.Logger) func(string) bool {
	var logged sync.Map
	return func(other string) bool {
		if other == rootDir {
			return false
		}
		theirs, err := os.Stat(rootLock(other))
		if err != nil {
			return false
		}
		if ours, err := os.Stat(rootLock(rootDir)); err == nil && os.SameFile(ours, theirs) {
			return false
		}
		if _, again := logged.LoadOrStore(other, nil); !again {
			log.Warn("the runtime has pods of another agent, which are left alone; if that agent will not run again, remove "+
				"its lock file to have this agent take them over", "rootDir", other, "lock", rootLock(other))
		}
		return true
	}
}

// prepareFolders makes the agent's folders.
func prepareFolders(node *config.Node) error {
	for _, f := range []struct {
		dir  string
		mode os.FileMode
	}{
		{node.RootDir, 0o750}, {filepath.Join(node.RootDir, "pods"), 0o750}, {filepath.Dir(rootLock(node.RootDir)), 0o700},
		{node.Kubelet.PodLogsDir, 0o755},
	} {
		if err := makeFolder(f.dir, f.mode); err != nil {
			return fmt.Errorf("making a folder of the agent: %w", err)
		}
	}
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
