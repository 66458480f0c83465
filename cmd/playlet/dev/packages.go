package dev

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/playlet-dev/playlet/cmd/playlet/dev/containerd"
)

// provide finds the programs. What is missing is installed where that was asked for, and named otherwise.
func provide(ctx context.Context, look func() (Programs, error), wanted bool, p *Progress) (Programs, error) {
	found, err := look()
	var missing *Missing
	if !errors.As(err, &missing) {
		return found, err
	}
	if !wanted {
		for _, line := range missing.Lines() {
			p.Line("%s", line)
		}
		return found, err
	}
	packages := strings.Join(missing.Packages(), " ")
	p.Line("Debian packages that are missing here are installed, and stay: %s", packages)
	err = p.Step("packages", func(waiting func(string)) (string, error) {
		waiting("apt-get installs " + packages)
		return packages + " (to remove them: apt-get purge " + packages + ")", install(ctx, missing.Packages())
	})
	if err != nil {
		return found, err
	}
	return look()
}

// install installs Debian packages, with fresh lists of what there is when the lists at hand do not do.
func install(ctx context.Context, packages []string) error {
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("there is no apt-get on this machine: install %s by its own means, or name where they are with "+
			"--programs",
			strings.Join(packages, " "))
	}
	// Nothing is taken away for it: another containerd, say, with what runs on it.
	args := append([]string{"install", "-y", "--no-install-recommends", "--no-remove"}, packages...)
	if err := aptGet(ctx, args...); err == nil || ctx.Err() != nil {
		return err
	}
	if err := aptGet(ctx, "update"); err != nil {
		return err
	}
	return aptGet(ctx, args...)
}

func aptGet(ctx context.Context, args ...string) error {
	// Who holds the lock is usually about to be done.
	cmd := exec.CommandContext(ctx, "apt-get", append([]string{"-q", "-o", "DPkg::Lock::Timeout=120"}, args...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) } // killed, it would leave packages half installed
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, containerd.Tail(string(out), 5))
	}
	return nil
}
