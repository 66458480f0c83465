package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// Machine has the parts of a newcomer's machine: a Debian with git and gcc, without Go and other additions.
type Machine struct {
	Tarball string // its root file system
	BusyBox string // a static program, for images with a shell
}

// newcomer is the part with the machine; the number is the version of its content.
const newcomer = "debian-12-newcomer-2"

// debootstrap creates the machine. It includes the downloads of `task demo`, as tests have no network: installed packages in
// apt's cache, and unpacked ones as an interrupted download leaves them.
var debootstrap = tool{"debootstrap", hasProgram("debootstrap")}

const (
	newcomersPackages = "--include=git,gcc,libc6-dev,ca-certificates"
	debianRelease     = "bookworm"
)

const demosDebs = "/root/.cache/playlet/debs"

var demosPackages = []string{"containerd", "runc", "containernetworking-plugins", "busybox-static"}

// task is the program of README's first command. It is run from its source, for which building it gets the modules.
var task = part{name: "task", module: "github.com/go-task/task/v3", version: "v3.53.1", programs: []string{"cmd/task"}}

// nfpm writes the packages that are tried on the machine; .ci/package runs it from its source, too.
var nfpm = part{name: "nfpm", module: "github.com/goreleaser/nfpm/v2", version: "v2.43.0", programs: []string{"cmd/nfpm"}}

// EnsureMachine gets a machine as Ensure gets runtimes.
func EnsureMachine(ctx context.Context, log io.Writer) error {
	return locked(ctx, log, func(j *job) error {
		return errors.Join(j.placeBusyBox(), j.build(task), j.build(nfpm), j.place(newcomer, func(dir string) error {
			if err := errors.Join(j.canApt("a Debian 12 to try README's commands on"), j.apt(debootstrap)); err != nil {
				return err
			}
			return j.step("making a Debian 12 to try README's commands on", func() error { return j.makeMachine(dir) })
		}))
	})
}

func (j *job) makeMachine(dir string) error {
	root := filepath.Join(dir, "root")
	in := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(j.ctx, "chroot", append([]string{root}, args...)...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C")
		return cmd
	}
	for _, cmd := range []*exec.Cmd{
		exec.CommandContext(j.ctx, "debootstrap", "--variant=minbase", newcomersPackages, debianRelease, root),
		in("apt-get", "clean"),
		in("apt-get", "-q", "install", "-y", "--no-install-recommends", "--download-only", "iptables"),
		in(append([]string{"sh", "-c", `mkdir -p "$0" && cd "$0" && apt-get -q download "$@"`, demosDebs}, demosPackages...)...),
		exec.CommandContext(j.ctx, "tar", "-C", root, "-cf", filepath.Join(dir, tarball), "."),
		exec.CommandContext(j.ctx, "rm", "-rf", "--one-file-system", root),
	} {
		if err := run(cmd); err != nil {
			return err
		}
	}
	return nil
}

const tarball = "root.tar"

// LocateMachine returns the parts that EnsureMachine installed; the error has the remedy.
func LocateMachine() (Machine, error) {
	cache, err := cacheDir()
	if err != nil {
		return Machine{}, err
	}
	m := Machine{Tarball: filepath.Join(cache, newcomer, tarball), BusyBox: filepath.Join(cache, busyBox.dir, "bin/busybox")}
	for _, path := range []string{m.Tarball, m.BusyBox} {
		if _, err := os.Stat(path); err != nil {
			return Machine{}, fmt.Errorf("the machine is not complete (%w): run `go run ./e2e/parts`", err)
		}
	}
	return m, nil
}
