package dev

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// provide finds the programs. What is missing is installed where that was asked for, and named otherwise.
func provide(ctx context.Context, o Options, p *Progress) (Programs, error) {
	look := func() (Programs, error) { return usualPlaces(o.Programs).find() }
	found, err := look()
	var missing *Missing
	if !errors.As(err, &missing) {
		return found, err
	}
	if !o.Install {
		for _, line := range missing.Lines() {
			p.Line("%s", line)
		}
		return found, err
	}
	packages := missing.Packages()
	err = p.Step("installing "+strings.Join(packages, " "), func(waiting func(string)) (string, error) {
		waiting("apt-get, this takes a moment")
		return "", install(ctx, packages)
	})
	if err != nil {
		return found, err
	}
	return look()
}

// install installs Debian packages, with fresh lists of what there is when the lists at hand do not do.
func install(ctx context.Context, packages []string) error {
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("there is no apt-get on this machine: install %s by its own means, or name where they are with --programs",
			strings.Join(packages, " "))
	}
	args := append([]string{"install", "-y", "--no-install-recommends"}, packages...)
	if aptGet(ctx, args...) == nil {
		return nil
	}
	if err := aptGet(ctx, "update"); err != nil {
		return err
	}
	return aptGet(ctx, args...)
}

func aptGet(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "apt-get", append([]string{"-q"}, args...)...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, tail(string(out), 5))
	}
	return nil
}

// tail gives the last lines of a text.
func tail(text string, lines int) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
