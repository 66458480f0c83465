package stack

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/moby/sys/mountinfo"
	"github.com/playlet-dev/playlet/cmd/playlet/dev/namespaces"
)

// Leftovers lists traces of pods that were not removed cleanly: shims and processes in containers, mounts, cgroups, network
// namespaces, interfaces, address leases. Without pods there are none. Processes in containers, cgroups and interfaces do not
// identify their stack: they are only listed while this stack is the only one.
func (s *Stack) Leftovers() ([]string, error) {
	var all []string
	for _, look := range []func() ([]string, error){
		s.leftProcesses, s.leftMounts, s.leftCgroups, s.leftNetns, s.leftLinks, s.leftLeases,
	} {
		found, err := look()
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// AwaitNoLeftovers waits until Leftovers lists nothing: the last of a pod ends a little after the call that removed it.
func (s *Stack) AwaitNoLeftovers() error {
	for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		left, err := s.Leftovers()
		if err != nil || len(left) == 0 {
			return err
		}
		if time.Since(begun) > waitLimit/4 {
			return fmt.Errorf("left behind:\n  %s", strings.Join(left, "\n  "))
		}
	}
}

func alone() bool { return live.Load() == 1 }

// ours returns the processes of pods: shims, known by their socket argument, and processes in a pod's cgroup.
func (s *Stack) ours() ([]process, error) {
	all, err := processes()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(p process) bool {
		shim := strings.Contains(p.cmdline, "-address "+s.Socket())
		return !shim && (p.group == "" || !alone())
	}), nil
}

func (s *Stack) leftProcesses() ([]string, error) {
	list, err := s.ours()
	var found []string
	for _, p := range list {
		found = append(found, fmt.Sprintf("process %d in %q: %s", p.pid, p.group, p.cmdline))
	}
	return found, err
}

func (s *Stack) mounts() ([]string, error) {
	mounts, err := mountinfo.GetMounts(nil)
	var points []string
	for _, m := range mounts {
		if strings.HasPrefix(m.Mountpoint, s.Dir+"/") && m.Mountpoint != s.root() {
			points = append(points, m.Mountpoint)
		}
	}
	return points, err
}

func (s *Stack) leftMounts() ([]string, error) {
	points, err := s.mounts()
	return prefixed("mount ", points), err
}

func (s *Stack) leftCgroups() ([]string, error) {
	if !alone() {
		return nil, nil
	}
	points, err := namespaces.Cgroups()
	if err != nil {
		return nil, err
	}
	in := map[string][]string{} // the hierarchies that have it, by path
	for _, point := range points {
		dirs, err := namespaces.Below(point)
		if err != nil {
			return nil, err
		}
		for _, dir := range dirs {
			if !permanent(filepath.Base(dir)) {
				path := strings.TrimPrefix(dir, point)
				in[path] = append(in[path], filepath.Base(point))
			}
		}
	}
	var found []string
	for _, path := range slices.Sorted(maps.Keys(in)) {
		found = append(found, fmt.Sprintf("cgroup %s in %s", path, strings.Join(in[path], ",")))
	}
	return found, nil
}

func (s *Stack) leftNetns() ([]string, error) {
	files, err := filepath.Glob(filepath.Join(s.files().State(), "*", "netns", "*"))
	return prefixed("network namespace ", files), err
}

func (s *Stack) leftLinks() ([]string, error) {
	if !alone() {
		return nil, nil
	}
	links, err := net.Interfaces()
	var found []string
	for _, link := range links {
		if strings.HasPrefix(link.Name, "veth") {
			found = append(found, "interface "+link.Name)
		}
	}
	return found, err
}

// leftLeases reads host-local's data directory, which has a file per address.
func (s *Stack) leftLeases() ([]string, error) {
	files, err := filepath.Glob(filepath.Join(s.LeaseDir(), "*", "*"))
	var found []string
	for _, file := range files {
		if net.ParseIP(filepath.Base(file)) != nil {
			found = append(found, "lease "+file)
		}
	}
	return found, err
}

// SweepByForce removes objects that the runtime leaves, and no longer knows, of calls interrupted by the death of the agent or
// its own: shims, mounts, network namespaces, leases, cgroups. It logs them. It is for tests that kill them in the middle of
// their work, when there is no pod any more.
func (s *Stack) SweepByForce() error {
	left, err := s.Leftovers()
	if err != nil || len(left) == 0 {
		return err
	}
	s.logf("left by calls that were cut off:\n  %s", strings.Join(left, "\n  "))
	leases, err := filepath.Glob(filepath.Join(s.LeaseDir(), "*", "*.*.*.*"))
	errs := []error{err, s.killOurs(), s.unmountAll()}
	spaces, err := filepath.Glob(filepath.Join(s.files().State(), "*", "netns", "*"))
	errs = append(errs, err)
	for _, file := range append(leases, spaces...) {
		errs = append(errs, os.Remove(file))
	}
	errs = append(errs, dropCgroups())
	return errors.Join(append(errs, s.AwaitNoLeftovers())...)
}

func prefixed(prefix string, list []string) []string {
	out := make([]string, len(list))
	for i, item := range list {
		out[i] = prefix + item
	}
	return out
}

// sweep removes remaining objects by force once the runtime has ended, and reports them in its error.
func (s *Stack) sweep() error {
	errs := []error{s.AwaitNoLeftovers()}
	errs = append(errs, s.killOurs(), s.unmountAll(), s.removeGroups())
	if alone() {
		errs = append(errs, removeCgroups())
	}
	if _, err := net.InterfaceByName(s.Bridge()); err == nil {
		if out, err := exec.Command("ip", "link", "delete", s.Bridge()).CombinedOutput(); err != nil {
			errs = append(errs, fmt.Errorf("bridge: %w: %s", err, out))
		}
	}
	return errors.Join(errs...)
}

func (s *Stack) killOurs() error {
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		list, err := s.ours()
		if err != nil || len(list) == 0 {
			return err
		}
		if time.Since(begun) > waitLimit/4 {
			return fmt.Errorf("processes that do not end: %v", list)
		}
		for _, p := range list {
			if err := syscall.Kill(p.pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return err
			}
		}
	}
}

func (s *Stack) unmountAll() error {
	points, err := s.mounts()
	if err != nil {
		return err
	}
	var errs []error
	for _, point := range slices.Backward(points) {
		if err := syscall.Unmount(point, syscall.MNT_DETACH); err != nil {
			errs = append(errs, fmt.Errorf("unmount %s: %w", point, err))
		}
	}
	return errors.Join(errs...)
}
