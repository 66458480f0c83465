package network

import (
	"cmp"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const ipForward = "net/ipv4/ip_forward"

// forwardingBefore reads all that setting net.ipv4.ip_forward changes, where it is not set yet: the kernel sets the
// switch of every interface with it, and turns redirects over (Documentation/networking/ip-sysctl).
func forwardingBefore(sys string) (map[string]string, error) {
	value, err := readSysctl(sys, ipForward)
	if err != nil || value != "0" {
		return nil, err
	}
	out := map[string]string{ipForward: value}
	files, err := filepath.Glob(filepath.Join(sys, "net/ipv4/conf/*/forwarding"))
	if err != nil {
		return nil, err
	}
	for _, file := range append(files, filepath.Join(sys, "net/ipv4/conf/all/accept_redirects")) {
		name, err := filepath.Rel(sys, file)
		if err != nil {
			return nil, err
		}
		value, err := readSysctl(sys, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // an interface that went meanwhile
		}
		if err != nil {
			return nil, err
		}
		out[name] = value
	}
	return out, nil
}

// restoreSysctls restores changed values, first the setting for all interfaces, then those of each.
func restoreSysctls(sys string, before map[string]string) error {
	names := slices.SortedFunc(maps.Keys(before), func(a, b string) int { // the setting for all is in a parent folder
		return cmp.Or(cmp.Compare(filepath.Dir(a), filepath.Dir(b)), cmp.Compare(a, b))
	})
	var errs []error
	for _, name := range names {
		now, err := readSysctl(sys, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // an interface that went
		}
		if err == nil && now != before[name] {
			err = os.WriteFile(filepath.Join(sys, name), []byte(before[name]), 0)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func readSysctl(sys, name string) (string, error) {
	data, err := os.ReadFile(filepath.Join(sys, name))
	return strings.TrimSpace(string(data)), err
}
