// Command conformance runs Kubernetes' own node suite (k8s.io/kubernetes/test/e2e_node) against the agent: the suite's API server
// and etcd, the agent in the kubelet's place with the flags and the configuration that the suite gives a kubelet, and the test
// stack's containerd, in namespaces of their own. The first run builds the suite, for minutes.
//
//	go run ./e2e/conformance [-part NAME] [-focus REGEXP] [-skip REGEXP] [-procs N] [-kubelet] [-table FOLDER] [-out FOLDER]
//	go run ./e2e/conformance -list
//
// The suite is run in parts; -list prints them. With -kubelet, the kubelet of the same version runs instead: a test that fails
// with it, too, fails because of the machine. With -table, the agent runs first, then the kubelet for the specs that failed, and
// the results go into the part's table in that folder, beside the results of earlier runs.
package main

import (
	"context"
	"embed"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/playlet-dev/playlet/cmd/playlet/dev/namespaces"
	"github.com/playlet-dev/playlet/e2e/conformance/suite"
	"github.com/playlet-dev/playlet/e2e/isolate"
	"github.com/playlet-dev/playlet/e2e/parts/install"
	"github.com/playlet-dev/playlet/e2e/stack"
)

var (
	options = suite.Flags("", 4, 5*time.Hour, "playlet-conformance")
	list    = flag.Bool("list", false, "print the parts of the suite, with the number of their specs")
	of      = flag.String("part", "conformance", "the part of the suite that runs; all of them where it is empty")
	table   = flag.String("table", "", "a folder; run, compare with the kubelet, and write the results into the part's table there")
	from    = flag.String("from", "", "with -table, the folder of an earlier run's report, which is read in place of a run")
	compare = flag.Bool("compare", true, "with -table, run the kubelet for the specs that failed")
)

// binary is the test binary in the folder that it works in.
const binary = "e2e_node.test"

// diskMiB is the size of the node's disk, a file that grows with its use. How full the machine's own disk is does not matter
// then, and specs that fill the node's disk do not fill the machine's.
const diskMiB = 10 << 10

// fakes stand in for systemd, by which the suite starts and restarts a kubelet.
//
//go:embed fakes
var fakes embed.FS

// configuration is the KubeletConfiguration that the suite extends: the one of Kubernetes' CI, with the requirements of this kind
// of machine: cgroup v1, no CAP_SYS_RESOURCE, and a runtime that is in no cgroup.
const configuration = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: cgroupfs
cgroupRoot: /
failCgroupV1: false
oomScoreAdj: 0
systemCgroups: /system
podCIDR: 10.100.0.0/24
volumeStatsAggPeriod: 10s
fileCheckFrequency: 10s
evictionPressureTransitionPeriod: 30s
evictionHard: {memory.available: 50Mi}
serializeImagePulls: false
`

func main() {
	flag.Parse()
	ctx := context.Background()
	if isolate.Inside() || !*list && *table == "" {
		os.Exit(runSuite(ctx))
	}
	if err := outside(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

// outside prints the parts, or writes a table, for which this program runs again.
func outside(ctx context.Context) error {
	parts, err := programs(ctx)
	if err != nil {
		return err
	}
	specs, err := listSpecs(ctx, parts.Tests)
	if err != nil {
		return err
	}
	if *list {
		printParts(os.Stdout, specs)
		return nil
	}
	return writeTable(ctx, specs)
}

// runSuite runs the suite in namespaces of its own and returns the exit code.
func runSuite(ctx context.Context) int {
	if !isolate.Inside() {
		if _, err := programs(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "conformance:", err)
			return 1
		}
	}
	return stack.Main(func() int {
		failed, err := run(ctx)
		if err != nil {
			fmt.Fprintln(os.Stderr, "conformance:", err)
		}
		if err != nil || failed > 0 {
			return 1
		}
		return 0
	})
}

// programs gets the suite and the programs of its images.
func programs(ctx context.Context) (p suite.Programs, err error) {
	var err1, err2, err3 error
	p.NodeTests, err1 = install.EnsureNodeTests(ctx, os.Stderr)
	p.Root, p.Shell, err2 = install.EnsureImagePrograms(ctx, os.Stderr)
	p.CoreDNS, err3 = install.EnsureCoreDNS(ctx, os.Stderr)
	return p, errors.Join(err1, err2, err3)
}

func run(ctx context.Context) (failed int, err error) {
	parts, err := programs(ctx)
	if err != nil {
		return 0, err
	}
	names, args, err := selected(ctx, parts.Tests)
	if err != nil {
		return 0, err
	}
	s, err := stack.New(ctx, stack.Options{Mirrored: []string{suite.Mirrored}, DiskMiB: diskMiB})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, dissolveCgroups(), s.Stop()) }()
	images, err := suite.PushImages(s.Registry, parts)
	if err != nil {
		return 0, err
	}
	for _, name := range images { // some tests ask for images that are not pulled for them
		if _, err := s.Pull(ctx, suite.Mirrored+"/"+name); err != nil {
			return 0, err
		}
	}
	// The suite's API server looks for the address of the default route.
	if out, err := exec.CommandContext(ctx, "ip", "route", "add", "default", "dev", isolate.HostName).CombinedOutput(); err != nil {
		return 0, fmt.Errorf("default route: %w: %s", err, out)
	}
	defer s.SuperviseRuntime()() // some specs kill it
	dir := filepath.Join(isolate.Dir(), "suite")
	if err := layOut(dir, s.DiskRoot(), parts.NodeTests); err != nil {
		return 0, err
	}
	if err := options.Clear(); err != nil {
		return 0, err
	}
	chosen := *options
	chosen.Focus = exactly(names)
	results, err := chosen.Run(ctx, suite.Suite{
		Ginkgo: parts.Ginkgo, Tests: filepath.Join(dir, binary), Dir: dir, Known: known, Log: "suite.log",
		Args: append([]string{
			"--prepull-images=false", "--k8s-bin-dir=" + filepath.Join(dir, "bin"), "--report-dir=" + options.Out,
			"--system-spec-file=" + filepath.Join(dir, "system.yaml"), "--kubelet-config-file=" + filepath.Join(dir, "base.yaml"),
			"--container-runtime-endpoint=unix://" + s.Socket(), "--kubelet-flags=--node-ip=" + isolate.NodeIP,
		}, args...),
		Env: []string{"PATH=" + filepath.Join(dir, "bin") + ":" + os.Getenv("PATH"), "HOME=" + dir},
	})
	if err != nil {
		return 0, err
	}
	results.Print(known, options.Out)
	return len(results.Failed), nil
}

// dissolveCgroups moves the processes of the groups that the agent made for them, this one too, into the root cgroups, and
// removes the groups. The stack ends all processes that it finds in groups.
func dissolveCgroups() error {
	roots, err := namespaces.Cgroups()
	for _, root := range roots {
		for _, group := range []string{"system", "kubelet.slice"} {
			procs, failed := os.ReadFile(filepath.Join(root, group, "cgroup.procs"))
			if failed != nil {
				continue // the agent did not make it here
			}
			for pid := range strings.FieldsSeq(string(procs)) {
				failed := os.WriteFile(filepath.Join(root, "cgroup.procs"), []byte(pid), 0)
				if !errors.Is(failed, unix.ESRCH) {
					err = errors.Join(err, failed)
				}
			}
			err = errors.Join(err, os.Remove(filepath.Join(root, group)))
		}
	}
	return err
}

// selected returns the names of the specs that run, and the flags of the suite that their part needs.
func selected(ctx context.Context, tests string) (names, args []string, err error) {
	all, err := listSpecs(ctx, tests)
	if err != nil {
		return nil, nil, err
	}
	focused, err := regexp.Compile(options.Focus)
	if err != nil {
		return nil, nil, err
	}
	skipped := []string{"nothing is named so"}
	for _, k := range known {
		skipped = append(skipped, k.Tests)
	}
	if options.Skip != "" {
		skipped = append(skipped, options.Skip)
	}
	unwanted, err := regexp.Compile(strings.Join(skipped, "|"))
	if err != nil {
		return nil, nil, err
	}
	if *of != "" {
		p, err := findPart(*of)
		if err != nil {
			return nil, nil, err
		}
		args = p.args
	}
	for _, s := range all {
		if (*of == "" || partOf(s) == *of) && focused.MatchString(s.name) && !unwanted.MatchString(s.name) {
			names = append(names, s.name)
		}
	}
	if len(names) == 0 {
		return nil, nil, fmt.Errorf("no spec of part %q matches %q", *of, options.Focus)
	}
	return names, args, nil
}

// layOut makes the folder that the suite works in, with the programs that it looks for in bin. The agent's folders lie on the
// disk of the runtime.
func layOut(dir, disk string, parts install.NodeTests) error {
	bin := filepath.Join(dir, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return err
	}
	node := filepath.Join(isolate.Dir(), "playlet")
	if options.Kubelet {
		var err error
		if node, err = stack.Kubelet(); err != nil {
			return err
		}
	}
	files, err := fakes.ReadDir("fakes")
	if err != nil {
		return err
	}
	for _, f := range files {
		text, err := fakes.ReadFile("fakes/" + f.Name())
		if err == nil {
			err = os.WriteFile(filepath.Join(bin, f.Name()), text, 0o755)
		}
		if err != nil {
			return err
		}
	}
	for _, kept := range []string{"/var/lib/kubelet", "/var/log/pods"} {
		own := filepath.Join(disk, "node", kept)
		err := errors.Join(os.MkdirAll(own, 0o755), os.MkdirAll(kept, 0o755), unix.Mount(own, kept, "", unix.MS_BIND, ""))
		if err != nil {
			return err
		}
	}
	return errors.Join(os.Symlink(node, filepath.Join(bin, "kubelet")), os.Symlink(parts.Tests, filepath.Join(dir, binary)),
		os.WriteFile(filepath.Join(dir, "base.yaml"), []byte(configuration), 0o644),
		os.WriteFile(filepath.Join(dir, "system.yaml"), []byte("os: Linux\nkernelSpec: {versions: ['.*']}\n"), 0o644))
}
