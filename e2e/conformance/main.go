// Command conformance runs Kubernetes' own node conformance suite (k8s.io/kubernetes/test/e2e_node) against the agent: the
// suite's API server and etcd, the agent in the kubelet's place with the flags and the configuration that the suite gives a
// kubelet, and the test stack's containerd, in namespaces of their own. The first run builds the suite, for minutes.
//
//	go run ./e2e/conformance [-focus REGEXP] [-skip REGEXP] [-procs N] [-kubelet] [-out FOLDER]
//
// With -kubelet, the kubelet of the same version runs instead: a test that fails with it, too, fails because of the machine.
package main

import (
	"context"
	"embed"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/playlet-dev/playlet/e2e/isolate"
	"github.com/playlet-dev/playlet/e2e/parts/install"
	"github.com/playlet-dev/playlet/e2e/stack"
)

var (
	focus   = flag.String("focus", `\[NodeConformance\]`, "the tests that run, by their names")
	skip    = flag.String("skip", "", "further tests that do not run")
	procs   = flag.Int("procs", 4, "how many tests run at once; those that must run alone do")
	kubelet = flag.Bool("kubelet", false, "run the kubelet in the agent's place")
	out     = flag.String("out", filepath.Join(os.TempDir(), "playlet-conformance"), "where logs and reports go; emptied before")
)

// suite is the test binary in the folder that it works in.
const suite = "e2e_node.test"

// mirrored is the registry that the suite has its images from.
const mirrored = "registry.k8s.io"

// fakes stand in for systemd, by which the suite starts and restarts a kubelet.
//
//go:embed fakes
var fakes embed.FS

// configuration is the KubeletConfiguration that the suite adds its own to: that of Kubernetes' CI, and what this kind of machine
// takes: cgroup v1, no CAP_SYS_RESOURCE, and a runtime that is in no cgroup.
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
	if filepath.Base(os.Args[0]) == "curl" {
		if err := curl(); err != nil {
			fmt.Fprintln(os.Stderr, "curl:", err)
			os.Exit(1)
		}
		return
	}
	flag.Parse()
	if !isolate.Inside() {
		if _, err := install.EnsureNodeTests(context.Background(), os.Stderr); err != nil {
			fmt.Fprintln(os.Stderr, "conformance:", err)
			os.Exit(1)
		}
	}
	os.Exit(stack.Main(func() int {
		failed, err := run(context.Background())
		if err != nil {
			fmt.Fprintln(os.Stderr, "conformance:", err)
		}
		if err != nil || failed > 0 {
			return 1
		}
		return 0
	}))
}

func run(ctx context.Context) (failed int, err error) {
	parts, err := install.EnsureNodeTests(ctx, os.Stderr)
	if err != nil {
		return 0, err
	}
	s, err := stack.New(ctx, stack.Options{Mirrored: []string{mirrored}})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	names, err := pushImages(s.Registry, parts)
	if err != nil {
		return 0, err
	}
	for _, name := range names { // some tests ask for images that are not pulled for them
		if _, err := s.Pull(ctx, mirrored+"/"+name); err != nil {
			return 0, err
		}
	}
	// The suite's API server looks for the address of the default route.
	if out, err := exec.CommandContext(ctx, "ip", "route", "add", "default", "dev", isolate.HostName).CombinedOutput(); err != nil {
		return 0, fmt.Errorf("default route: %w: %s", err, out)
	}
	dir := filepath.Join(isolate.Dir(), "suite")
	if err := layOut(dir, parts); err != nil {
		return 0, err
	}
	if err := errors.Join(os.RemoveAll(*out), os.MkdirAll(*out, 0o755)); err != nil {
		return 0, err
	}
	log, err := os.Create(filepath.Join(*out, "suite.log"))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	skipped := []string{"nothing is named so"}
	for _, k := range known {
		skipped = append(skipped, k.tests)
	}
	if *skip != "" {
		skipped = append(skipped, *skip)
	}
	progress := &counter{log: log, said: time.Now()}
	cmd := exec.CommandContext(ctx, parts.Ginkgo, "--procs="+fmt.Sprint(*procs), "--no-color", "--timeout=3h", "--silence-skips",
		"--focus="+*focus, "--skip="+strings.Join(skipped, "|"), filepath.Join(dir, suite), "--",
		"--prepull-images=false", "--k8s-bin-dir="+filepath.Join(dir, "bin"), "--report-dir="+*out,
		"--system-spec-file="+filepath.Join(dir, "system.yaml"), "--kubelet-config-file="+filepath.Join(dir, "base.yaml"),
		"--container-runtime-endpoint=unix://"+s.Socket(), "--kubelet-flags=--node-ip="+isolate.NodeIP)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"), "HOME="+dir)
	cmd.Stdout, cmd.Stderr = progress, progress
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return 0, err
	}
	return summary(filepath.Join(*out, "junit_01.xml"))
}

// layOut makes the folder that the suite works in, with the programs that it looks for in bin.
func layOut(dir string, parts install.NodeTests) error {
	bin := filepath.Join(dir, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return err
	}
	node := filepath.Join(isolate.Dir(), "playlet")
	if *kubelet {
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
	for _, kept := range []string{"/var/lib/kubelet", "/var/log/pods"} { // on a disk, where a folder has a size
		own := filepath.Join(dir, kept)
		err := errors.Join(os.MkdirAll(own, 0o755), os.MkdirAll(kept, 0o755), unix.Mount(own, kept, "", unix.MS_BIND, ""))
		if err != nil {
			return err
		}
	}
	return errors.Join(os.Symlink(node, filepath.Join(bin, "kubelet")), os.Symlink(parts.Tests, filepath.Join(dir, suite)),
		os.WriteFile(filepath.Join(dir, "base.yaml"), []byte(configuration), 0o644),
		os.WriteFile(filepath.Join(dir, "system.yaml"), []byte("os: Linux\nkernelSpec: {versions: ['.*']}\n"), 0o644))
}

// counter writes what the suite says to a log, and says now and then how many tests are over: each is a bullet there.
type counter struct {
	log  *os.File
	over int
	said time.Time
}

func (c *counter) Write(p []byte) (int, error) {
	c.over += strings.Count(string(p), "•")
	if time.Since(c.said) > 30*time.Second {
		fmt.Printf("%d tests are over\n", c.over)
		c.said = time.Now()
	}
	return c.log.Write(p)
}

// summary says what became of the tests, and how many failed.
func summary(report string) (failed int, err error) {
	data, err := os.ReadFile(report)
	if err != nil {
		return 0, fmt.Errorf("the suite did not run (%w): see %s", err, filepath.Join(*out, "suite.log"))
	}
	var all struct {
		Cases []struct {
			Name    string  `xml:"name,attr"`
			Status  string  `xml:"status,attr"`
			Seconds float64 `xml:"time,attr"`
			Skipped struct {
				Message string `xml:"message,attr"`
			} `xml:"skipped"`
			Failure struct {
				Message string `xml:"message,attr"`
			} `xml:"failure"`
		} `xml:"testsuite>testcase"`
	}
	if err := xml.Unmarshal(data, &all); err != nil {
		return 0, err
	}
	var passed int
	var lines []string
	for _, c := range all.Cases {
		test := strings.HasPrefix(c.Name, "[It]") // and not what comes before and after all of them
		switch {
		case c.Status == "passed" && !test:
		case c.Status == "passed":
			passed++
		case c.Status != "skipped":
			failed++
			lines = append(lines, fmt.Sprintf("FAILED   %s: %s", c.Name, firstLine(c.Failure.Message)))
		case c.Skipped.Message != "skipped": // by the test itself; others were not asked for
			lines = append(lines, fmt.Sprintf("skipped  %s: %s", c.Name, firstLine(c.Skipped.Message)))
		}
	}
	slices.Sort(lines)
	for _, l := range lines {
		fmt.Println(l)
	}
	for _, k := range known {
		fmt.Printf("skipped  %s: %s\n", k.tests, k.why)
	}
	fmt.Printf("%d passed, %d failed; logs and reports are in %s\n", passed, failed, *out)
	return failed, nil
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}
