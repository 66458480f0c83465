package resources

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Sysctl is a kernel setting, with its desired and its actual value.
type Sysctl struct {
	Name     string
	Want, Is int64
}

// kubeletSysctls are the settings that the kubelet sets or, with protectKernelDefaults, requires (the documentation of that
// field).
var kubeletSysctls = []Sysctl{
	{Name: "vm.overcommit_memory", Want: 1}, {Name: "vm.panic_on_oom", Want: 0}, {Name: "kernel.panic", Want: 10},
	{Name: "kernel.panic_on_oops", Want: 1}, {Name: "kernel.keys.root_maxkeys", Want: 1000000},
	{Name: "kernel.keys.root_maxbytes", Want: 25000000},
}

// DifferingSysctls reads from "/proc" the kernel settings that differ from the kubelet's. A kernel may lack some.
func DifferingSysctls(procfs string) (out []Sysctl, err error) {
	var errs []error
	for _, s := range kubeletSysctls {
		text, err := os.ReadFile(s.path(procfs))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			s.Is, err = strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		}
		if errs = append(errs, err); err == nil && s.Is != s.Want {
			out = append(out, s)
		}
	}
	return out, errors.Join(errs...)
}

// Set writes the desired value.
func (s Sysctl) Set(procfs string) error {
	return os.WriteFile(s.path(procfs), []byte(strconv.FormatInt(s.Want, 10)), 0)
}

func (s Sysctl) path(procfs string) string {
	return filepath.Join(procfs, "sys", strings.ReplaceAll(s.Name, ".", "/"))
}

// Swaps returns the swap areas in use, read from "/proc"; zram counts too.
func Swaps(procfs string) (areas []string, err error) {
	text, err := os.ReadFile(filepath.Join(procfs, "swaps"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // a kernel without swap
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 0 && f[0] != "Filename" {
			areas = append(areas, f[0])
		}
	}
	return areas, err
}
