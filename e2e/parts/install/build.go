package install

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// part is a set of programs built from one Go module at one version.
type part struct {
	name, module, version string
	programs              []string // packages, relative to the module
	tags                  string
	cgo                   bool
	setVersion            string // variables that the linker sets to the version
	packages              []tool // Debian packages that building takes
	check                 string // a program whose --version must say the version, without its v
}

func (p part) dir() string { return p.name + "-" + p.version }

// The pinned parts. btrfs, devmapper and zfs are left out of containerd, as they take C libraries and no test uses them.
var (
	containerd = part{
		name: "containerd", module: "github.com/containerd/containerd/v2", version: "v2.4.2",
		programs:   []string{"cmd/containerd", "cmd/containerd-shim-runc-v2", "cmd/ctr"},
		tags:       "no_btrfs no_devmapper no_zfs",
		setVersion: "github.com/containerd/containerd/v2/version.Version",
		check:      "containerd",
	}
	// Without the tag seccomp, the profile RuntimeDefault fails.
	runc = part{
		name: "runc", module: "github.com/opencontainers/runc", version: "v1.5.2",
		programs: []string{""},
		tags:     "seccomp",
		cgo:      true,
		packages: []tool{
			{"gcc", hasProgram("gcc")},
			{"libc6-dev", hasFile("/usr/include/stdlib.h")},
			{"pkg-config", hasProgram("pkg-config")},
			{"libseccomp-dev", hasLibrary("libseccomp")},
		},
		check: "runc",
	}
	cniPlugins = part{
		name: "cni-plugins", module: "github.com/containernetworking/plugins", version: "v1.9.1",
		programs:   []string{"plugins/main/bridge", "plugins/main/loopback", "plugins/ipam/host-local", "plugins/meta/portmap"},
		setVersion: "github.com/containernetworking/plugins/pkg/utils/buildversion.BuildVersion",
	}
)

// build compiles a part with `go install`, unless it is there.
func (j *job) build(p part) error {
	return j.place(p.dir(), func(dir string) error {
		if err := j.apt(p.packages...); err != nil {
			return err
		}
		what := fmt.Sprintf("building %s %s", p.name, p.version)
		return j.step(what, func() error {
			if err := j.goInstall(p, dir); err != nil {
				return err
			}
			return checkVersion(p, dir)
		})
	})
}

func (j *job) goInstall(p part, dir string) error {
	args := []string{"install", "-tags", p.tags, "-ldflags", "-s -w"}
	if p.setVersion != "" {
		args[len(args)-1] += " -X " + p.setVersion + "=" + p.version
	}
	for _, program := range p.programs {
		path := p.module
		if program != "" {
			path += "/" + program
		}
		args = append(args, path+"@"+p.version)
	}
	cmd := exec.CommandContext(j.ctx, "go", args...)
	cmd.Dir = dir // outside any module: go.mod and its workspace do not take part
	cgo := "0"
	if p.cgo {
		cgo = "1"
	}
	cmd.Env = append(os.Environ(), "GOBIN="+dir, "CGO_ENABLED="+cgo, "GOWORK=off", "GOFLAGS=-buildvcs=false", "GOOS=", "GOARCH=")
	return run(cmd)
}

func checkVersion(p part, dir string) error {
	if p.check == "" {
		return nil
	}
	out, err := exec.Command(filepath.Join(dir, p.check), "--version").CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s --version: %w: %s", p.check, err, out)
	}
	if !strings.Contains(string(out), strings.TrimPrefix(p.version, "v")) {
		return fmt.Errorf("%s says it is %q, not %s", p.check, bytes.TrimSpace(out), p.version)
	}
	return nil
}

// run runs a command; its error carries what the command wrote.
func run(cmd *exec.Cmd) error {
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}
