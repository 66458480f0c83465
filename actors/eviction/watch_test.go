package eviction

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/actors/eviction/memwatch"
)

// memoryNode is a machine with 400 MiB of memory on cgroups of version 1, with scripted figures.
type memoryNode struct {
	*Meter
	t *testing.T
}

func newMemoryNode(t *testing.T) memoryNode {
	dir := t.TempDir()
	for _, d := range []string{"proc", "memory"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	n := memoryNode{Places{Proc: filepath.Join(dir, "proc"), Cgroups: dir}.Meter(), t}
	n.write("proc/meminfo", fmt.Sprintf("MemTotal: %d kB\n", 400<<10))
	return n
}

func (n memoryNode) write(path, text string) {
	if err := os.WriteFile(filepath.Join(n.Cgroups, path), []byte(text), 0o600); err != nil {
		n.t.Fatal(err)
	}
}

// uses sets the used MiB, and the inactive part of the cache.
func (n memoryNode) uses(usage, inactive int64) {
	n.write("memory/memory.usage_in_bytes", fmt.Sprintln(usage*mi))
	n.write("memory/memory.stat", fmt.Sprintf("total_inactive_file %d\n", inactive*mi))
}

// recordingKernel is a kernel that records its thresholds, and ends the wait.
type recordingKernel struct {
	exact, broken bool
	list          []memwatch.Threshold
	limit         time.Duration
	waited        func()
}

func (a *recordingKernel) Exact() bool  { return a.exact }
func (a *recordingKernel) Broken() bool { return a.broken }
func (a *recordingKernel) Close()       {}
func (a *recordingKernel) Wait(_ context.Context, limit time.Duration) {
	a.limit = limit
	a.waited()
}

// The kernel's notification of usage is relied on only if usage must cross its threshold before the working set is too large.
// With more cache than the limit permits, that threshold would exceed the capacity and never notify.
func TestWhenTheKernelsWordIsEnough(t *testing.T) {
	for name, c := range map[string]struct {
		usage, inactive, meanwhile int64 // MiB; meanwhile is used while the threshold is set
		kernel                     bool
		at                         int64
		want                       time.Duration
	}{
		"little is used":                         {150, 50, 150, true, 300, mostLook},
		"more cache than the threshold":          {300, 250, 300, true, 550, leastLook},
		"cache within the threshold":             {320, 50, 320, true, 350, leastLook},
		"it was crossed before it was asked for": {299, 50, 301, true, 300, leastLook},
		"the kernel tells nothing of usage":      {150, 50, 150, false, 300, leastLook},
	} {
		n := newMemoryNode(t)
		n.uses(c.usage, c.inactive)
		ctx, cancel := context.WithCancel(t.Context())
		kernel := &recordingKernel{exact: c.kernel, waited: cancel}
		n.arm = func(_, _ string, list []memwatch.Threshold) memoryWatch {
			kernel.list = list
			n.uses(c.meanwhile, c.inactive)
			return kernel
		}
		if n.Await(ctx, map[Signal]int64{MemoryAvailable: 100 * mi}) {
			t.Errorf("%s: it is short", name)
		}
		if len(kernel.list) != 1 || kernel.list[0].Usage != c.at*mi || kernel.limit != c.want {
			t.Errorf("%s: the kernel is asked for %v, and waited for %s; want %d and %s", name, kernel.list, kernel.limit, c.at*mi, c.want)
		}
	}
}

// The kernel's threshold is set again when the cache changes, and after the kernel drops it.
func TestTheKernelIsAskedAnew(t *testing.T) {
	for name, kernel := range map[string]recordingKernel{"the cache changes": {exact: true}, "its cgroup was removed": {broken: true}} {
		n := newMemoryNode(t)
		n.uses(320, 50)
		var asks []int64
		kernel.waited = func() { n.uses(330, 40) }
		n.arm = func(_, _ string, list []memwatch.Threshold) memoryWatch {
			if asks = append(asks, list[0].Usage/mi); len(asks) == 2 {
				kernel.waited = func() { n.uses(390, 40) }
			}
			return &kernel
		}
		if !n.Await(t.Context(), map[Signal]int64{MemoryAvailable: 100 * mi}) {
			t.Errorf("%s: that it is short is not told", name)
		}
		if len(asks) != 2 || asks[0] != 350 || asks[1] != 340 {
			t.Errorf("%s: asked for %v", name, asks)
		}
	}
}
