package doctor

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/playlet-dev/playlet/cni"
	"github.com/playlet-dev/playlet/config"
)

// Machine is what is looked at. Its fields are set before Run and not changed.
type Machine struct {
	// Node is the agent's configuration, Warnings what was said of it.
	Node     *config.Node
	Warnings []config.Warning
	// OtherConfig is a configuration file that is there and was not named; empty where there is none.
	OtherConfig string
	// CNIConfDir and CNIBinDirs are what the command line says; empty: the runtime is asked.
	CNIConfDir string
	CNIBinDirs []string
	// Proc, Sys and Run are "/proc", "/sys" and "/run", but for tests.
	Proc, Sys, Run string
	// System is the kernel.
	System System
	// Dial reaches the runtime.
	Dial func(node *config.Node) (Runtime, error)
	// Agent asks the agent that runs for its version; an error where none answers.
	Agent func(ctx context.Context) (version string, err error)
	// Addresses are the node's.
	Addresses func() []netip.Addr
	// TrialDir and NetNSDir are where a trial of the network keeps its record, and its namespace.
	TrialDir, NetNSDir string
	// Built is when this program was built; zero when that is not known.
	Built time.Time

	asking  sync.Once
	asked   chan struct{}
	runtime runtimeFacts

	looking sync.Once
	looked  chan struct{}
	network networkFacts
}

// Disk is a file system's room.
type Disk struct {
	// Size and Free are in bytes; Free is what others than root can have.
	Size, Free uint64
	// Inodes is 0 where the file system has no fixed number of them.
	Inodes, InodesFree uint64
	// Type is the kernel's magic number, statfs(2).
	Type int64
}

// System is what the kernel is asked.
type System interface {
	Disk(path string) (Disk, error)
	// Writable says whether this process may write to the file or folder: access(2).
	Writable(path string) error
	// Clocks gives wall and monotonic time.
	Clocks() (wall time.Time, monotonic time.Duration)
	// Synchronised says whether the clock is kept right: adjtimex(2).
	Synchronised() (yes bool, err error)
	// Tmpfs tries to make one that is mounted nowhere, and says whether it can be kept from swap.
	Tmpfs() (noswap bool, err error)
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

// places says where the network is configured: as the command line says, else the runtime, else by convention; from is
// who said so. guessed says that the runtime could not be asked, or does not
// tell.
func (m *Machine) places(ctx context.Context) (p cni.Places, from string, guessed bool) {
	p, from = cni.DefaultPlaces(), "by convention"
	if facts, err := m.askRuntime(ctx); err != nil {
		guessed = true
	} else if reported, ok := cni.PlacesOf(facts.status.GetInfo()); ok {
		p, from = reported, "as the runtime says"
	} else { // CRI-O does not say where its network is configured
		guessed = true
	}
	if m.CNIConfDir != "" {
		p.ConfDir, from, guessed = m.CNIConfDir, "as --cni-conf-dir says", false
	}
	if len(m.CNIBinDirs) > 0 {
		p.BinDirs = slices.Clone(m.CNIBinDirs)
	}
	return p, from, guessed
}
