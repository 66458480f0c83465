package doctor

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/playlet-dev/playlet/actors/pod"
	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cni"
	"github.com/playlet-dev/playlet/config"
)

// Machine is the subject of the checks. Its fields are set before Run and not changed.
type Machine struct {
	// Node is the agent's configuration. Warnings are the warnings about it.
	Node     *config.Node
	Warnings []config.Warning
	// Service is the unit file of the installed service, if its flags are checked. Unread is that file if only root can read it
	// or its configuration.
	Service, Unread string
	// Running means that the flags of the running agent are checked. RunningPID is its process, 0 if that cannot be seen. Unasked
	// is the reason that no agent was found, or nil.
	Running    bool
	RunningPID int
	Unasked    error
	// CNIConfDir and CNIBinDirs are from the command line; empty: the runtime is asked.
	CNIConfDir string
	CNIBinDirs []string
	// Proc, Sys and Run are "/proc", "/sys" and "/run", but for tests.
	Proc, Sys, Run string
	// System is the kernel.
	System System
	// Dial reaches the runtime.
	Dial func(node *config.Node) (Runtime, error)
	// Agent asks the agent that runs; an error where none answers.
	Agent func(ctx context.Context) (RunningAgent, error)
	// Socket is the agent's socket. With Chosen, the user named it (PLAYLET_SOCKET), whatever its root folder is.
	Socket string
	Chosen bool
	// Held asks the agent that runs for the folders that it keeps; an error where none answers.
	Held func(ctx context.Context) ([]api.Finding, error)
	// Addresses are the node's.
	Addresses func() []netip.Addr
	// UserBounds returns the user IDs of which pods with hostUsers: false get so many each.
	UserBounds func(ctx context.Context, idsPerPod uint32) (pod.UserRange, error)
	// TrialDir and NetNSDir are the folders for the plugins' results, and for the namespace, of a trial of the network.
	TrialDir, NetNSDir string
	// Built is when this program was built; zero when that is not known.
	Built time.Time

	runtime sharedAnswer[*runtimeFacts]
	network sharedAnswer[networkFacts]
}

// sharedAnswer is an answer that is computed for the first caller and shared with all.
type sharedAnswer[T any] struct {
	asked    sync.Once
	answered chan struct{}
	answer   T
	err      error
}

// get waits for the answer until ctx ends.
func (o *sharedAnswer[T]) get(ctx context.Context, ask func(context.Context) (T, error)) (T, error) {
	o.asked.Do(func() {
		o.answered = make(chan struct{})
		go func() {
			defer close(o.answered)
			o.answer, o.err = ask(ctx)
		}()
	})
	select {
	case <-o.answered:
		return o.answer, o.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}

// Disk is a file system's room.
type Disk struct {
	// Size and Free are in bytes. Free excludes the space reserved for root.
	Size, Free uint64
	// Inodes is 0 where the file system has no fixed number of them.
	Inodes, InodesFree uint64
	// Device is the ID of the device, stat(2). Two folders with the same one share the space.
	Device uint64
	// Type is the kernel's magic number, statfs(2).
	Type int64
}

// System is the interface to the kernel.
type System interface {
	Disk(path string) (Disk, error)
	// Writable returns an error unless this process may write to the file or folder: access(2).
	Writable(path string) error
	// Clocks gives wall and monotonic time.
	Clocks() (wall time.Time, monotonic time.Duration)
	// Synchronised reports whether the clock is synchronized: adjtimex(2).
	Synchronised() (yes bool, err error)
	// Openat2 tries openat2(2) as paths of pods are opened.
	Openat2(dir string) error
}

// cgroup is where cgroups are mounted.
func (m *Machine) cgroup() string { return filepath.Join(m.Sys, "fs/cgroup") }

// number reads a file with a number, such as a sysctl.
func number(path string) (int64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
}

// sysctl reads one by its name with dots.
func (m *Machine) sysctl(name string) (int64, error) {
	return number(filepath.Join(m.Proc, "sys", filepath.FromSlash(strings.ReplaceAll(name, ".", "/"))))
}

// existing is the path, or the nearest folder above it that is there.
func existing(path string) string {
	for path != "/" && path != "." {
		if _, err := os.Stat(path); err == nil {
			return path
		}
		path = filepath.Dir(path)
	}
	return path
}

// places returns the folders of the network's configuration: those of the command line, or else of the runtime, or else the
// default ones. from is their source. guessed means that the runtime could not be asked, or does not report them.
func (m *Machine) places(ctx context.Context) (p cni.Places, from string, guessed bool) {
	p, from = cni.DefaultPlaces(), "the default folders"
	if facts, err := m.askRuntime(ctx); err != nil {
		guessed = true
	} else if reported, ok := cni.PlacesOf(facts.status.GetInfo()); ok {
		p, from = reported, "the folders that the runtime reports"
	} else { // CRI-O does not report them
		guessed = true
	}
	if m.CNIConfDir != "" {
		p.ConfDir, from, guessed = m.CNIConfDir, "the folder of --cni-conf-dir", false
	}
	if len(m.CNIBinDirs) > 0 {
		p.BinDirs = slices.Clone(m.CNIBinDirs)
	}
	return p, from, guessed
}

// kernel is the machine's own System.
type kernel struct{}

func (kernel) Disk(path string) (Disk, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		return Disk{}, &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	var at unix.Stat_t
	if err := unix.Stat(path, &at); err != nil {
		return Disk{}, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	block := uint64(fs.Bsize) //nolint:gosec // a size
	return Disk{Size: fs.Blocks * block, Free: fs.Bavail * block, Inodes: fs.Files, InodesFree: fs.Ffree, Type: fs.Type,
		Device: at.Dev}, nil
}

func (kernel) Writable(path string) error {
	if err := unix.Access(path, unix.W_OK); err != nil {
		return &os.PathError{Op: "writing to", Path: path, Err: err}
	}
	return nil
}

func (kernel) Clocks() (wall time.Time, monotonic time.Duration) {
	var w, m unix.Timespec
	// These two clocks are always there: clock_gettime(2).
	_ = unix.ClockGettime(unix.CLOCK_REALTIME, &w)
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &m)
	return time.Unix(w.Unix()), time.Duration(m.Nano())
}

func (kernel) Synchronised() (bool, error) {
	var t unix.Timex // no modes: nothing is set
	state, err := unix.Adjtimex(&t)
	if err != nil {
		return false, err
	}
	return state != unix.TIME_ERROR && t.Status&unix.STA_UNSYNC == 0, nil
}

func (kernel) Openat2(dir string) error {
	root, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: dir, Err: err}
	}
	f, err := unix.Openat2(root, ".", &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS})
	if err == nil {
		err = unix.Close(f)
	}
	return errors.Join(err, unix.Close(root))
}
