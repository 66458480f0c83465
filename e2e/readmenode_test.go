//go:build e2e

package e2e

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	cri "github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/playlet-dev/playlet/cmd/playlet/dev/containerd"
	"github.com/playlet-dev/playlet/cmd/playlet/dev/devimages"
	"github.com/playlet-dev/playlet/cmd/playlet/dev/process"
	"github.com/playlet-dev/playlet/e2e/cluster"
	"github.com/playlet-dev/playlet/e2e/isolate"
	"github.com/playlet-dev/playlet/e2e/parts/install"
	"github.com/playlet-dev/playlet/e2e/stack"
)

// readmesNode is the newcomer's machine with a containerd and an agent of README's first line.
type readmesNode struct {
	*newcomer
	registry *devimages.Registry
	agent    *endless
}

// endless is a process that goes on until it is interrupted.
type endless struct {
	t    *testing.T
	cmd  *exec.Cmd
	out  processOutput
	done chan struct{}
}

func goes(t *testing.T, cmd *exec.Cmd) *endless {
	t.Helper()
	e := &endless{t: t, cmd: cmd, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &e.out, &e.out
	must(t, cmd.Start())
	go func() {
		_ = cmd.Wait() // how it ended is asked of cmd.ProcessState
		close(e.done)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it has usually ended
		<-e.done
		if t.Failed() {
			t.Logf("%v printed\n%s", cmd.Args, process.Tail(e.out.String(), 60))
		}
	})
	return e
}

// prints waits until its output matches.
func (e *endless) prints(pattern string) {
	e.t.Helper()
	await(e.t, func() error {
		if regexp.MustCompile(pattern).MatchString(e.out.String()) {
			return nil
		}
		select {
		case <-e.done:
			e.t.Fatalf("%v has ended without %q:\n%s", e.cmd.Args, pattern, e.out.String())
		default:
		}
		return fmt.Errorf("%q is not printed", pattern)
	})
}

func (e *endless) ends(s syscall.Signal, code int) {
	e.t.Helper()
	must(e.t, e.cmd.Process.Signal(s))
	select {
	case <-e.done:
	case <-time.After(waitLimit):
		e.t.Fatal("it does not end")
	}
	if got := e.cmd.ProcessState.ExitCode(); got != code {
		e.t.Errorf("%v ended with %d, want %d:\n%s", e.cmd.Args, got, code, process.Tail(e.out.String(), 20))
	}
}

const (
	readmesBridge = "readme0"
	// machinesConfig has settings that this machine needs and README's reader may not.
	machinesConfig = "/etc/playlet-test.yaml"
	settings       = "failCgroupV1: false\nfailSwapOn: false\ncgroupDriver: cgroupfs\nmakeIPTablesUtilChains: false\n" +
		"evictionHard: {memory.available: 1Mi}\nauthentication: {webhook: {enabled: false}}\n"
)

// nodesFlags are those that README speaks of in words beside the agent's line, and this machine's configuration.
var nodesFlags = []string{"--config=" + machinesConfig, "--object-dir=/etc/kubernetes/objects", "--enable-chaos",
	"--observatory-address=127.0.0.1:4195"}

// startNode starts containerd, and the agent of README's line.
func (m *newcomer) startNode(said sayings) *readmesNode {
	t := m.t
	t.Helper()
	n := m.startContainerd()
	m.write(machinesConfig, configuration(settings))
	m.write("/etc/kubernetes/objects/.keep", "")
	m.write("/etc/kubernetes/manifests/static.yaml", helloManifest("static", n.registry.Ref("hello")))
	for name, text := range manifestsOfReadme {
		m.write(clone+"/"+name, strings.ReplaceAll(text, "NGINX", n.registry.Ref("nginx")))
	}
	n.agent = n.start(said.command(t, services[0]) + " " + strings.Join(nodesFlags, " "))
	n.until("playlet pods", "static-node0 +1/1 +Running")
	return n
}

// hasContainerd unpacks Debian's containerd where its package has it.
func (m *newcomer) hasContainerd() {
	m.t.Helper()
	parts, err := install.Locate(install.Old)
	must(m.t, err)
	outside(m.t, "sh", "-c", `tar -C "$0" -c usr | tar -C "$1" -x --keep-directory-symlink`,
		filepath.Dir(filepath.Dir(filepath.Dir(parts.Containerd))), m.root)
}

// startContainerd starts it, as a machine with systemd does at boot, beside a registry that it pulls from.
func (m *newcomer) startContainerd() *readmesNode {
	t := m.t
	t.Helper()
	m.hasContainerd()
	n := &readmesNode{newcomer: m}
	var err error
	n.registry, err = devimages.StartRegistry(context.WithoutCancel(t.Context()))
	must(t, err)
	t.Cleanup(func() { must(t, n.registry.Close()) })
	must(t, n.registry.Push("nginx", webImage(t, m.parts.BusyBox)))
	outside(t, "ip", "route", "add", "default", "via", strings.TrimSuffix(isolate.NodeIP, ".1")+".254", "dev", isolate.HostName)
	t.Cleanup(func() {
		outside(t, "ip", "route", "delete", "default")
		_ = exec.Command("ip", "link", "delete", readmesBridge).Run() // it may not have come to a pod
	})

	snapshots, err := containerd.Snapshotter(m.root)
	must(t, err)
	toml, err := containerd.Settings{
		Major: 1, Minor: 6, Root: "/var/lib/containerd", State: "/run/containerd", Socket: "/run/containerd/containerd.sock",
		Opt: "/opt/containerd", Runc: "/usr/sbin/runc", Handlers: []string{"runc"}, Snapshotter: snapshots,
		CNIBins: []string{"/usr/lib/cni"}, CNIConf: "/etc/cni/net.d", Sandbox: n.registry.Ref("pause"), KeepScore: true,
	}.TOML()
	must(t, err)
	network, err := containerd.Network{
		Version: "1.0.0", Name: "pods", Bridge: readmesBridge, Subnet: "10.99.0.0/24", Leases: "/var/lib/cni",
	}.Conflist()
	must(t, err)
	m.write("/etc/containerd/config.toml", toml)
	m.write("/etc/cni/net.d/10-pods.conflist", network)
	runtime := goes(t, m.command(context.WithoutCancel(t.Context()), "containerd"))
	t.Cleanup(func() { runtime.ends(syscall.SIGTERM, 0) })
	t.Cleanup(func() { // a failed test leaves pods, and interfaces on which later tests would wait
		ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
		defer cancel()
		socket := fmt.Sprintf("/proc/%d/root/run/containerd/containerd.sock", m.init)
		if err := stack.RemovePods(ctx, socket); err != nil && !t.Failed() {
			t.Error(err)
		}
	})
	return n
}

// start starts an agent.
func (m *newcomer) start(line string) *endless {
	m.t.Helper()
	return goes(m.t, m.shell(context.WithoutCancel(m.t.Context()), line))
}

// until repeats a line until it succeeds with a matching output.
func (m *newcomer) until(line, pattern string) {
	m.t.Helper()
	await(m.t, func() error {
		out, err := m.shell(m.t.Context(), line).CombinedOutput()
		if err == nil && !regexp.MustCompile(pattern).Match(out) {
			err = fmt.Errorf("%q is not printed", pattern)
		}
		if err != nil {
			err = fmt.Errorf("%s: %w\n%s", line, err, out)
		}
		return err
	})
}

// webImage has a shell, a server of HTTP and a folder of settings.
func webImage(t *testing.T, busybox string) v1.Image {
	t.Helper()
	program, err := os.ReadFile(busybox)
	must(t, err)
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	add := func(h tar.Header, data []byte) {
		h.Size = int64(len(data))
		must(t, w.WriteHeader(&h))
		_, err := w.Write(data)
		must(t, err)
	}
	for _, dir := range []string{"bin/", "etc/", "etc/nginx/", "tmp/"} {
		add(tar.Header{Name: dir, Typeflag: tar.TypeDir, Mode: 0o755}, nil)
	}
	add(tar.Header{Name: "bin/busybox", Mode: 0o755}, program)
	for _, name := range []string{"sh", "tar", "httpd", "sleep", "tail", "cat", "test"} {
		add(tar.Header{Name: "bin/" + name, Typeflag: tar.TypeSymlink, Linkname: "busybox"}, nil)
	}
	add(tar.Header{Name: "etc/nginx/nginx.conf", Mode: 0o644}, []byte("worker_processes 1;\n"))
	must(t, w.Close())
	image, err := mutate.Append(mutate.MediaType(empty.Image, cri.OCIManifestSchema1),
		mutate.Addendum{Layer: static.NewLayer(layer.Bytes(), cri.OCIUncompressedLayer)})
	must(t, err)
	file, err := image.ConfigFile()
	must(t, err)
	file = file.DeepCopy()
	file.OS, file.Architecture = "linux", goarch
	file.Config.Env = []string{"PATH=/bin"}
	image, err = mutate.ConfigFile(image, file)
	must(t, err)
	return mutate.ConfigMediaType(image, cri.OCIConfigJSON)
}

// try runs a command like a newcomer, and checks the result.
func (n *readmesNode) try(t *testing.T, one run) {
	t.Helper()
	n = &readmesNode{newcomer: &newcomer{t: t, root: n.root, init: n.init}, registry: n.registry}
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	if one.before != nil {
		one.before(n)
	}
	images := strings.NewReplacer("NGINX", n.registry.Ref("nginx"), "HELLO", n.registry.Ref("hello"))
	cmd := n.shell(ctx, "cd "+clone+" && exec "+images.Replace(one.command))
	switch {
	case one.keys != nil:
		y := typing(t, cmd)
		for _, k := range one.keys {
			y.sees(k.seen)
			y.key(k.typed)
		}
		y.ends(one.code)
		matches(t, one, y.out.String())
	case one.until != "":
		if one.input != "" {
			read, write, err := os.Pipe()
			must(t, err)
			cmd.Stdin = read
			defer write.Close() //nolint:errcheck // a pipe
			_, err = io.WriteString(write, one.input)
			must(t, err)
		}
		e := goes(t, cmd)
		e.prints(one.until)
		if one.then != nil {
			one.then(n, e.out.String())
		}
		e.ends(syscall.SIGINT, one.code)
	default:
		cmd.Stdin = strings.NewReader(one.input)
		out, _ := cmd.CombinedOutput() // how it ended is asked of cmd.ProcessState
		if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != one.code {
			t.Fatalf("%s ended with %v, want %d:\n%s", one.command, cmd.ProcessState, one.code, out)
		}
		matches(t, one, string(out))
		if one.then != nil {
			one.then(n, string(out))
		}
	}
}

func matches(t *testing.T, one run, out string) {
	t.Helper()
	if !regexp.MustCompile(one.want).MatchString(out) {
		t.Errorf("%s does not print %q:\n%s", one.command, one.want, out)
	}
}

// serves gets a page.
func serves(t *testing.T, url, want string) {
	t.Helper()
	jar, err := cookiejar.New(nil) // a browser's, in which the observatory puts its token
	must(t, err)
	client := http.Client{Jar: jar, Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(url)
	must(t, err)
	defer resp.Body.Close() //nolint:errcheck // read to the end
	if text, err := io.ReadAll(resp.Body); err != nil || !strings.Contains(string(text), want) {
		t.Errorf("%s answers %s %q, %v, want %q", url, resp.Status, text, err, want)
	}
}

// shows runs the pod of README's example of an explanation, and compares.
func (n *readmesNode) shows(said sayings) {
	t := n.t
	t.Helper()
	want := said.shown[0]
	n.runs("cd "+clone+" && playlet run -f greedy.yaml", 0)
	n.until("playlet explain web", "^"+regexp.QuoteMeta(want[0])+"\n(?s:.*)CrashLoopBackOff(?s:.*)failed: +[0-9]+ times")
	got := strings.Split(n.runs("playlet explain web", 0), "\n")
	label := func(line string) string {
		before, _, _ := strings.Cut(line, ": ")
		return before
	}
	for i, line := range want {
		if i >= len(got) || label(got[i]) != label(line) {
			t.Fatalf("README has\n%s\nand it is\n%s", strings.Join(want, "\n"), strings.Join(got, "\n"))
		}
	}
	last := len(want) - 1
	if line := strings.ReplaceAll(want[last], "node1", isolate.HostName); got[last] != line {
		t.Errorf("it says %q, README %q", got[last], line)
	}
	n.runs("playlet rm web --force --wait", 0)
}

// end ends the agent. Its pods have ended before.
func (n *readmesNode) end() {
	n.t.Helper()
	must(n.t, os.Remove(n.path("/etc/kubernetes/manifests/static.yaml")))
	await(n.t, func() error {
		if out := n.runs("playlet pods -o name", 0); out != "" {
			return fmt.Errorf("there are %s", out)
		}
		return nil
	})
	n.agent.ends(syscall.SIGINT, 0)
}

// joinsACluster starts README's agent of a cluster, on a machine that has the name of the certificate.
func (n *readmesNode) joinsACluster(c *cluster.Cluster, said sayings) {
	t := n.t
	t.Helper()
	node := c.Node(t)
	kubeconfig, err := os.ReadFile(node.Kubeconfig)
	must(t, err)
	n.write("/var/lib/kubelet/kubeconfig", string(kubeconfig))
	n.write("/var/lib/kubelet/config.yaml", configuration(settings))
	line := said.command(t, services[1])
	agent := goes(t, n.command(context.WithoutCancel(t.Context()), "unshare", "--uts", "sh", "-c", "hostname "+node.Name+" && exec "+line))
	awaitNode(t, c, node.Name, nodeReady)
	agent.ends(syscall.SIGINT, 0)
}

// leavesNothing compares the test machine's state at the test's end with the current one.
func leavesNothing(t *testing.T) {
	t.Helper()
	before, groups := machine(t), cgroups(t)
	t.Cleanup(func() {
		for _, dir := range slices.Backward(cgroups(t)) {
			if !slices.Contains(groups, dir) {
				_ = syscall.Rmdir(dir) // groups of QoS classes, which an agent leaves for the next; busy ones are reported below
			}
		}
		asBefore(t, before)
	})
}
