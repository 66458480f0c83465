package meminfo_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/playlet-dev/playlet/actors/internal/linux/meminfo"
)

func TestRead(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want meminfo.Memory
		fail bool
	}{
		"all": {"MemTotal:    1600 kB\nMemFree: 1 kB\nSwapTotal:    512 kB\nHugetlb:    600 kB\n",
			meminfo.Memory{Total: 1600 << 10, Swap: 512 << 10, HugePages: 600 << 10}, false},
		"no huge pages": {"MemTotal:    1600 kB\n", meminfo.Memory{Total: 1600 << 10}, false},
		"no total":      {"Hugetlb:    600 kB\n", meminfo.Memory{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			proc := t.TempDir()
			if err := os.WriteFile(filepath.Join(proc, "meminfo"), []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := meminfo.Read(proc)
			if (err != nil) != c.fail || got != c.want {
				t.Errorf("got %+v (%v), want %+v, an error: %v", got, err, c.want, c.fail)
			}
		})
	}
	if m, err := meminfo.Read("/proc"); err != nil || m.HugePages > m.Total {
		t.Errorf("got %+v (%v) of this machine", m, err)
	}
	if _, err := meminfo.Read(t.TempDir()); err == nil {
		t.Error("got no error for an absent file")
	}
}
