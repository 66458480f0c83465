// Package meminfo reads the machine's memory. Registration, eviction and the statistics share it, so that their figures agree.
// Safe for concurrent use.
package meminfo

import (
	"fmt"

	"github.com/prometheus/procfs"
	"k8s.io/utils/ptr"
)

// Memory is the memory of the machine, in bytes.
type Memory struct {
	Total, Swap int64
	// HugePages is the memory that the kernel keeps for huge pages, free ones included; 0 if it does not report it. It is part of
	// Total and of no working set.
	HugePages int64
}

// Read reads meminfo in the folder proc (proc_meminfo(5)). A file without the total is an error.
func Read(proc string) (Memory, error) {
	fs, err := procfs.NewFS(proc)
	if err != nil {
		return Memory{}, fmt.Errorf("the machine's memory: %w", err)
	}
	info, err := fs.Meminfo()
	if err != nil {
		return Memory{}, fmt.Errorf("the machine's memory: %w", err)
	}
	bytes := func(n *uint64) int64 { return int64(ptr.Deref(n, 0)) } //nolint:gosec // a machine's memory
	m := Memory{Total: bytes(info.MemTotalBytes), Swap: bytes(info.SwapTotalBytes), HugePages: bytes(info.HugetlbBytes)}
	if m.Total == 0 {
		return Memory{}, fmt.Errorf("the machine's memory: %s/meminfo has no MemTotal", proc)
	}
	return m, nil
}
