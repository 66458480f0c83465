package programs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/playlet-dev/playlet/cmd/playlet/dev/process"
	"github.com/playlet-dev/playlet/cmd/playlet/dev/progress"
)

// Provide finds the programs, first in these folders. Missing ones are downloaded if that was requested, and otherwise named in
// the error. Only the sample's shell may stay missing.
func Provide(ctx context.Context, first []string, wanted bool, p *progress.Progress) (Programs, error) {
	look := func() (Programs, error) { return usualPlaces(first).find() } // unpacked packages add folders
	return provide(ctx, look, wanted, p)
}

func provide(ctx context.Context, look func() (Programs, error), wanted bool, p *progress.Progress) (Programs, error) {
	found, err := look()
	var missing *MissingError
	switch {
	case !errors.As(err, &missing):
		return found, err
	case !wanted && missing.shellOnly():
		p.Line("the sample pod gets no shell: there is no static busybox here (playlet dev --install downloads one)")
		return found, nil
	case !wanted:
		for _, line := range missing.Lines() {
			p.Line("%s", line)
		}
		return found, err
	}
	if err := supply(ctx, missing.Packages(), partsCache(), p); err != nil {
		return found, err
	}
	return look()
}

// libraries are packages that do not work where they are only unpacked: they bring libraries. Nothing of them runs by itself.
var libraries = []string{"iptables"}

// supply gets Debian packages. They are unpacked into the cache of parts and not installed, but for those with libraries: an
// installed containerd would run beside ours, and begin with each boot.
func supply(ctx context.Context, packages []string, cache string, p *progress.Progress) error {
	all := strings.Join(packages, " ")
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("there is no apt-get on this machine: install %s with its package manager, or give their folders with "+
			"--programs", all)
	}
	if cache == "" {
		return errors.New("set $HOME or $PLAYLET_CACHE to the folder in which to unpack " + all)
	}
	var installed, unpacked []string
	for _, name := range packages {
		if slices.Contains(libraries, name) {
			installed = append(installed, name)
		} else {
			unpacked = append(unpacked, name)
		}
	}
	if len(unpacked) > 0 {
		p.Line("Debian packages that are missing here are unpacked into %s, and stay there: %s", cache,
			strings.Join(unpacked, " "))
		if err := p.Step("packages", func(waiting func(string)) (string, error) {
			waiting("apt-get downloads " + strings.Join(unpacked, " "))
			return strings.Join(unpacked, " "), unpack(ctx, unpacked, cache)
		}); err != nil {
			return err
		}
	}
	if len(installed) == 0 {
		return nil
	}
	names := strings.Join(installed, " ")
	p.Line("A Debian package that is missing here is installed, and stays: %s", names)
	return p.Step("packages", func(waiting func(string)) (string, error) {
		waiting("apt-get installs " + names)
		// Nothing is taken away for it.
		return names + " (to remove it: apt-get purge " + names + ")",
			aptGet(ctx, "", append([]string{"install", "-y", "--no-install-recommends", "--no-remove"}, installed...)...)
	})
}

// unpack downloads packages and unpacks each into a folder of the cache, where usualPlaces finds it. Downloads of an interrupted
// run are reused.
func unpack(ctx context.Context, packages []string, cache string) error {
	debs := filepath.Join(filepath.Dir(cache), "debs")
	for _, dir := range []string{cache, debs} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := aptGet(ctx, debs, append([]string{"download"}, packages...)...); err != nil {
		return err
	}
	for _, name := range packages {
		files, err := filepath.Glob(filepath.Join(debs, name+"_*.deb"))
		if err != nil || len(files) == 0 {
			return fmt.Errorf("apt-get has not downloaded %s into %s", name, debs)
		}
		file := files[len(files)-1]
		unfinished := filepath.Join(cache, "unfinished-"+name)
		finished := filepath.Join(cache, "debian-"+strings.TrimSuffix(filepath.Base(file), ".deb"))
		if err := os.RemoveAll(unfinished); err != nil { // from an interrupted run
			return err
		}
		out, err := exec.CommandContext(ctx, "dpkg-deb", "-x", file, unfinished).CombinedOutput()
		if err != nil {
			return fmt.Errorf("unpacking %s: %w: %s", file, err, process.Tail(string(out), 5))
		}
		if err := errors.Join(os.RemoveAll(finished), os.Rename(unfinished, finished)); err != nil {
			return err
		}
	}
	return os.RemoveAll(debs)
}

// aptGet calls apt-get, and again with updated package lists if that fails.
func aptGet(ctx context.Context, dir string, args ...string) error {
	if err := aptGetOnce(ctx, dir, args...); err == nil || ctx.Err() != nil {
		return err
	}
	if err := aptGetOnce(ctx, dir, "update"); err != nil {
		return err
	}
	return aptGetOnce(ctx, dir, args...)
}

func aptGetOnce(ctx context.Context, dir string, args ...string) error {
	// The holder of the lock is usually about to finish.
	cmd := exec.CommandContext(ctx, "apt-get", append([]string{"-q", "-o", "DPkg::Lock::Timeout=120"}, args...)...)
	cmd.Dir = dir
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) } // killed, it would leave packages half installed
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, process.Tail(string(out), 5))
	}
	return nil
}
