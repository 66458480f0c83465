package install

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

// part is a set of programs built from one Go module at one version.
type part struct {
	name, module, version string
	programs              []string // packages, relative to the module
	tests                 []string // packages built as test binaries, each NAME.test
	tags                  string
	cgo                   bool
	setVersion            string // variable that the linker sets to the version
	set                   string // further arguments of the linker
	packages              []tool // Debian packages that building takes
	check                 string // a program whose --version must print the version, without its v
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

// clusterModule is the folder, below the project's, of the module that pins the parts of a cluster. They cannot be installed
// by version alone, as Kubernetes asks for modules that are replaced there.
const clusterModule = "e2e/parts/cluster"

// The parts of a cluster, which have to be of the versions in the module: a test compares.
var (
	kubernetes = part{
		name: "kubernetes", module: "k8s.io/kubernetes", version: "v1.36.3",
		programs:   []string{"cmd/kube-apiserver", "cmd/kubelet"},
		setVersion: "k8s.io/component-base/version.gitVersion",
		set: "-X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36" +
			" -X k8s.io/component-base/version.gitTreeState=clean",
		check: "kubelet",
	}
	kubectl = part{ // apart from the others, which need not be built again for it
		name: "kubectl", module: kubernetes.module, version: kubernetes.version,
		programs: []string{"cmd/kubectl"}, setVersion: kubernetes.setVersion, set: kubernetes.set,
	}
	// clusterTests is the suite of cluster conformance, sampleAPIServer a program of one of its images.
	clusterTests = part{
		name: "cluster-e2e", module: kubernetes.module, version: kubernetes.version,
		tests: []string{"test/e2e"}, setVersion: kubernetes.setVersion, set: kubernetes.set,
	}
	sampleAPIServer = part{name: "sample-apiserver", module: "k8s.io/sample-apiserver", version: "v0.36.3", programs: []string{""}}
	// The suite of node conformance: its tests, the runner, and the programs of its images.
	nodeTests = part{
		name: "node-e2e", module: kubernetes.module, version: kubernetes.version,
		programs: []string{"test/images/agnhost", "test/images/nonewprivs"}, tests: []string{"test/e2e_node"},
		setVersion: kubernetes.setVersion, set: kubernetes.set,
	}
	nodeTestPlugin = part{ // apart from the suite, which need not be built again for it
		name: "node-e2e-plugin", module: kubernetes.module, version: kubernetes.version,
		programs: []string{"test/images/sample-device-plugin"},
	}
	ginkgo = part{name: "ginkgo", module: "github.com/onsi/ginkgo/v2", version: "v2.28.1", programs: []string{"ginkgo"}}
	etcd   = part{
		name: "etcd", module: "go.etcd.io/etcd/server/v3", version: "v3.6.8",
		programs: []string{""},
		check:    "etcd",
	}
)

// build compiles a part with `go install`, unless it is there.
func (j *job) build(p part) error { return j.compile(p, j.goInstall) }

// buildCluster compiles a part of a cluster in the module that pins it, unless it is there.
func (j *job) buildCluster(p part) error { return j.compile(p, j.goBuild) }

func (j *job) compile(p part, compile func(p part, dir string) error) error {
	return j.place(p.dir(), func(dir string) error {
		if err := j.apt(p.packages...); err != nil {
			return err
		}
		what := fmt.Sprintf("building %s %s", p.name, p.version)
		return j.step(what, func() error {
			if err := compile(p, dir); err != nil {
				return err
			}
			return checkVersion(p, dir)
		})
	})
}

func (j *job) goInstall(p part, dir string) error {
	args := append([]string{"install"}, p.flags()...)
	for _, program := range p.programs {
		args = append(args, p.path(program)+"@"+p.version)
	}
	cmd := j.goCommand(p, args...)
	cmd.Dir = dir // outside any module: go.mod and its workspace do not take part
	cmd.Env = append(cmd.Env, "GOBIN="+dir)
	return run(cmd)
}

func (j *job) goBuild(p part, dir string) error {
	root, err := exec.CommandContext(j.ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return fmt.Errorf("the module of the working directory: %w", err)
	}
	build := func(name, program string, verb ...string) error {
		args := append(append(verb, "-trimpath", "-o", filepath.Join(dir, name)), p.flags()...)
		cmd := j.goCommand(p, append(args, p.path(program))...)
		cmd.Dir = filepath.Join(strings.TrimSpace(string(root)), clusterModule)
		return run(cmd)
	}
	for _, program := range p.programs {
		name := path.Base(program)
		if program == "" {
			name = p.name
		}
		if err := build(name, program, "build"); err != nil {
			return err
		}
	}
	for _, tests := range p.tests {
		if err := build(path.Base(tests)+".test", tests, "test", "-c", "-vet=off"); err != nil {
			return err
		}
	}
	return nil
}

func (p part) path(program string) string { return path.Join(p.module, program) }

func (p part) flags() []string {
	link := "-s -w"
	if p.setVersion != "" {
		link += " -X " + p.setVersion + "=" + p.version
	}
	return []string{"-tags", p.tags, "-ldflags", strings.TrimSpace(link + " " + p.set)}
}

func (j *job) goCommand(p part, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(j.ctx, "go", args...)
	cgo := "0"
	if p.cgo {
		cgo = "1"
	}
	cmd.Env = append(os.Environ(), "CGO_ENABLED="+cgo, "GOWORK=off", "GOFLAGS=-buildvcs=false", "GOOS=", "GOARCH=")
	return cmd
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

// run runs a command; its error includes the command's output.
func run(cmd *exec.Cmd) error {
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}
