package doctor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/playlet-dev/playlet/actors/resources"
)

// checkMemory compares the memory there is with the eviction threshold, and looks for swap.
func checkMemory(_ context.Context, m *Machine) []Finding {
	total, available, err := m.meminfo()
	if err != nil {
		return skip("%v", err)
	}
	found := m.short("memory.available", "memory", available, total, bytesText)
	if len(found) > 0 {
		found[0].Do = "stop what is not needed, or give the machine more"
	}
	swaps, err := resources.Swaps(m.Proc)
	if err != nil {
		return append(found, skip("%v", err)...)
	}
	if err := m.Node.CheckSwap(swaps); err != nil {
		found = append(found, fail("swapoff -a and take it out of /etc/fstab, or set failSwapOn: false and choose "+
			"memorySwap.swapBehavior; the agent does not start otherwise", "%v", err)...)
	}
	if len(found) > 0 {
		return found
	}
	text := fmt.Sprintf("%s of %s available", bytesText(available), bytesText(total))
	if len(swaps) == 0 {
		return ok("%s, no swap", text)
	}
	behaviour := m.Node.Kubelet.MemorySwap.SwapBehavior
	if behaviour == "" {
		behaviour = "NoSwap"
	}
	return ok("%s, swap for pods: %s", text, behaviour)
}

func (m *Machine) meminfo() (total, available uint64, err error) {
	text, err := os.ReadFile(filepath.Join(m.Proc, "meminfo"))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		n, err := strconv.ParseUint(f[1], 10, 64)
		switch {
		case err != nil:
		case f[0] == "MemTotal:":
			total = n << 10
		case f[0] == "MemAvailable:":
			available = n << 10
		}
	}
	if total == 0 {
		return 0, 0, fmt.Errorf("%s does not tell", filepath.Join(m.Proc, "meminfo"))
	}
	return total, available, nil
}
