package install

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// debianDir holds the older runtime, unpacked as it would lie on a Debian 12.
const debianDir = "debian-12-containerd-1.6.20"

// debianPackages are the upstream versions of Debian 12; the part after them, Debian's own, may move on.
var debianPackages = []struct{ name, upstream string }{
	{"containerd", "1.6.20"},
	{"runc", "1.1.5"},
	{"containernetworking-plugins", "1.1.1"},
}

// unpackDebian downloads the older runtime and unpacks it into the cache; nothing of it is installed.
func (j *job) unpackDebian() error {
	return j.place(debianDir, func(dir string) error {
		if err := j.canApt("Debian 12's containerd"); err != nil {
			return err
		}
		return j.step("downloading Debian 12's containerd 1.6.20, runc 1.1.5 and CNI plugins 1.1.1", func() error {
			if err := j.aptUpdate(); err != nil {
				return err
			}
			for _, p := range debianPackages {
				if err := j.unpack(p.name, p.upstream, dir); err != nil {
					return err
				}
			}
			// A missing library shows here rather than as a sandbox that does not start.
			if err := run(exec.CommandContext(j.ctx, filepath.Join(dir, "usr/sbin/runc"), "--version")); err != nil {
				return err
			}
			return run(exec.CommandContext(j.ctx, filepath.Join(dir, "usr/bin/containerd"), "--version"))
		})
	})
}

func (j *job) unpack(name, upstream, dir string) error {
	version, err := j.offered(name, upstream)
	if err != nil {
		return err
	}
	return j.unpackNewest(dir, name+"="+version)
}

// unpackNewest downloads packages, each the newest or with =VERSION that one, and unpacks them.
func (j *job) unpackNewest(dir string, packages ...string) error {
	debs, err := os.MkdirTemp("", "playlet-deb-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(debs) //nolint:errcheck // a temporary directory
	if err := run(j.aptGet(debs, append([]string{"download"}, packages...)...)); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(debs, "*.deb"))
	if err != nil || len(files) != len(packages) {
		return fmt.Errorf("apt-get download %s gave %q (%v)", strings.Join(packages, " "), files, err)
	}
	for _, file := range files {
		if err := run(exec.CommandContext(j.ctx, "dpkg-deb", "-x", file, dir)); err != nil {
			return err
		}
	}
	return nil
}

// offered gives the newest Debian version of an upstream version that the configured archives have.
func (j *job) offered(name, upstream string) (string, error) {
	out, err := exec.CommandContext(j.ctx, "apt-cache", "madison", name).Output()
	if err != nil {
		return "", fmt.Errorf("apt-cache madison %s: %w", name, err)
	}
	var others []string
	for line := range strings.Lines(string(out)) {
		columns := strings.Split(line, "|")
		if len(columns) < 2 {
			continue
		}
		version := strings.TrimSpace(columns[1])
		if rest, ok := strings.CutPrefix(version, upstream); ok && (rest == "" || strings.ContainsAny(rest[:1], "~+-")) {
			return version, nil // the list is sorted, newest first
		}
		others = append(others, version)
	}
	return "", fmt.Errorf("the package archives configured here offer no %s %s (but %q): it is Debian 12's", name, upstream,
		others)
}
