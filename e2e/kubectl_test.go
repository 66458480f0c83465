//go:build e2e

package e2e

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
	clientexec "k8s.io/client-go/util/exec"

	"github.com/playlet-dev/playlet/e2e/cluster"
	"github.com/playlet-dev/playlet/e2e/stack"
)

// kubectl is the real one, on pods of a namespace.
type kubectl struct {
	*testing.T
	c  *cluster.Cluster
	ns string
}

func (k kubectl) command(ctx context.Context, args ...string) *exec.Cmd {
	k.Helper()
	return k.c.Kubectl(ctx, k.T, append([]string{"--namespace=" + k.ns}, args...)...)
}

// run runs it to its end.
func (k kubectl) run(stdin string, args ...string) (out, errs string, code int) {
	k.Helper()
	ctx, cancel := context.WithTimeout(k.Context(), waitLimit)
	defer cancel()
	cmd := k.command(ctx, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	if err := cmd.Run(); cmd.ProcessState == nil || ctx.Err() != nil {
		k.Fatalf("kubectl %v: %v; %s%s", args, errors.Join(err, ctx.Err()), &stdout, &stderr)
	}
	return stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
}

// says runs it, and compares its output.
func (k kubectl) says(want string, args ...string) {
	k.Helper()
	if out, errs, code := k.run("", args...); out != want || code != 0 {
		k.Errorf("kubectl %v: code %d, %q, want %q; %s", args, code, out, want, errs)
	}
}

// talks runs it on a program that repeats lines until one is "end", or its input has ended. The last output of an attached
// container before its end is lost, with a kubelet too: so the end is only sent once the first line has come back.
func (k kubectl) talks(args ...string) {
	k.Helper()
	ctx, cancel := context.WithTimeout(k.Context(), waitLimit)
	defer cancel()
	cmd := k.command(ctx, args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	in, err := cmd.StdinPipe()
	must(k.T, err)
	out, err := cmd.StdoutPipe()
	must(k.T, err)
	must(k.T, cmd.Start())
	_, err = io.WriteString(in, "hello\n")
	must(k.T, err)
	lines := bufio.NewScanner(out)
	for lines.Scan() && lines.Text() != "hello" { // kubectl debug has its own words before
	}
	heard := lines.Text()
	_, err = io.WriteString(in, "end\n")
	must(k.T, errors.Join(err, in.Close()))
	_, err = io.Copy(io.Discard, out)
	if err := errors.Join(err, cmd.Wait()); err != nil || heard != "hello" {
		k.Errorf("kubectl %v: %v, %q, %s", args, err, heard, &errs)
	}
}

// servedNode returns a stack whose agent serves the node's API to the cluster's server.
func servedNode(t *testing.T, c *cluster.Cluster) (*stack.Stack, *cluster.Node) {
	t.Helper()
	n := c.Node(t)
	s, _ := inCluster(t, c, n, func(a *stack.Agent) {
		a.Config["authentication"] = map[string]any{"x509": map[string]any{"clientCAFile": c.CAFile}}
	})
	return s, n
}

// Users' kubectl commands on a pod work through the API server and the node's API.
func TestKubectl(t *testing.T) {
	c := cluster.Shared(t)
	s, n := servedNode(t, c)
	ns := c.Namespace(t)
	data := t.TempDir()
	create(t, c, ns, n.Name, manifest(s, "web", strings.ReplaceAll(withTool(t, `
terminationGracePeriodSeconds: 1
containers:
- {name: app, image: HELLO, args: [args, one, two, '--', sleep], env: [{name: PATH, value: /usr/bin}], TOOL}
- {name: cat, image: HELLO, command: [/tool/run, tool, cat], stdin: true, stdinOnce: true, TOOL}
- {name: tty, image: HELLO, command: [/tool/run, tool, tty], stdin: true, tty: true, TOOL}
- {name: echo, image: HELLO, command: [/tool/run, tool, echo, '7777'], TOOL}
- {name: swap, image: HELLO, command: [/tool/run, tool, swap, '7778'], TOOL}
- {name: crash, image: HELLO, args: [args, crashed, '--', exit, '3']}`, data),
		"{name: data, mountPath", "{name: tool, mountPath: /usr/bin/tar}, {name: data, mountPath")))
	awaitAPIPod(t, c, ns, "web", func(p *corev1.Pod) error {
		for _, name := range []string{"app", "cat", "tty", "echo", "swap"} {
			if statusOf(p, name).State.Running == nil {
				return fmt.Errorf("container %s: %+v", name, statusOf(p, name))
			}
		}
		if statusOf(p, "crash").LastTerminationState.Terminated == nil {
			return fmt.Errorf("it has not ended twice: %+v", statusOf(p, "crash"))
		}
		return nil
	})

	t.Run("logs", func(t *testing.T) {
		k := kubectl{t, c, ns}
		k.says("one\ntwo\n", "logs", "web", "-c", "app")
		k.says("two\n", "logs", "web", "-c", "app", "--tail=1")
		k.says("crashed\n", "logs", "web", "-c", "crash", "--previous")
		if _, errs, code := k.run("", "logs", "web", "-c", "app", "--previous"); code == 0 || !regexp.MustCompile("no earlier run|previous terminated container").MatchString(errs) {
			t.Errorf("code %d, %s", code, errs)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		cmd := k.command(ctx, "logs", "-f", "web", "-c", "app")
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		lines := bufio.NewScanner(out)
		for _, want := range []string{"one", "two"} {
			if !lines.Scan() || lines.Text() != want {
				t.Errorf("followed: %q, want %q", lines.Text(), want)
			}
		}
		cancel()
		_ = cmd.Wait() // it was killed
	})
	t.Run("exec", func(t *testing.T) {
		k := kubectl{t, c, ns}
		with := func(before ...string) []string { return append([]string{"exec", "web", "-c", "app"}, before...) }
		out, errs, code := k.run("", with("--", toolPath, "tool", "say", "to stdout", "to stderr", "3")...)
		if code != 3 || out != "to stdout\n" || !strings.HasPrefix(errs, "to stderr\n") {
			t.Errorf("code %d, %q, %q", code, out, errs)
		}
		long := strings.Repeat("what comes in goes out\n", 50_000)
		if out, errs, code = k.run(long, with("-i", "--", toolPath, "tool", "cat")...); code != 0 || out != long {
			t.Errorf("code %d, %d bytes of %d, %q", code, len(out), len(long), errs)
		}
		if _, errs, code = k.run("", with("--", "/none")...); code == 0 || !strings.Contains(errs, "/none") {
			t.Errorf("code %d, %q", code, errs)
		}
	})
	t.Run("exec by a WebSocket of version 4", func(t *testing.T) { // which the API server and the agent pass on to the runtime
		at := c.Admin.CoreV1().RESTClient().Post().Resource("pods").Namespace(ns).Name("web").SubResource("exec").VersionedParams(
			&corev1.PodExecOptions{Container: "app", Command: []string{toolPath, "tool", "say", "to stdout", "to stderr", "3"}, Stdout: true, Stderr: true},
			scheme.ParameterCodec)
		client, err := remotecommand.NewWebSocketExecutorForProtocols(c.Config, http.MethodGet, at.URL().String(), "v4.channel.k8s.io")
		must(t, err)
		var out, errs bytes.Buffer
		err = client.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: &out, Stderr: &errs})
		var code clientexec.CodeExitError
		if !errors.As(err, &code) || code.Code != 3 || out.String() != "to stdout\n" || errs.String() != "to stderr\n" {
			t.Errorf("%v, %q, %q", err, &out, &errs)
		}
	})
	t.Run("exec with a terminal", func(t *testing.T) {
		k := kubectl{t, c, ns}
		withTerminal(t, k.command(t.Context(), "exec", "-it", "web", "-c", "app", "--", toolPath, "tool", "tty"))
	})
	t.Run("attach", func(t *testing.T) {
		k := kubectl{t, c, ns}
		k.talks("attach", "-i", "web", "-c", "cat")
	})
	t.Run("attach with a terminal", func(t *testing.T) {
		k := kubectl{t, c, ns}
		if code := inTerminalUntil(t, k.command(t.Context(), "attach", "-it", "web", "-c", "tty"), "end\r", ""); code != 0 {
			t.Errorf("the exit code is %d", code)
		}
	})
	t.Run("cp", func(t *testing.T) {
		k := kubectl{t, c, ns}
		there, back := filepath.Join(t.TempDir(), "there"), filepath.Join(t.TempDir(), "back")
		text := make([]byte, 8<<20)
		for i := range text {
			text[i] = byte(rand.Uint32())
		}
		must(t, os.WriteFile(there, text, 0o600))
		k.says("", "cp", there, "web:/data/copy", "-c", "app")
		got, err := os.ReadFile(filepath.Join(data, "copy"))
		must(t, err)
		if !bytes.Equal(got, text) {
			t.Errorf("%d bytes of %d arrived", len(got), len(text))
		}
		if _, errs, code := k.run("", "cp", "web:/data/copy", back, "-c", "app"); code != 0 {
			t.Errorf("code %d, %s", code, errs)
		}
		got, err = os.ReadFile(back)
		must(t, err)
		if !bytes.Equal(got, text) {
			t.Errorf("%d bytes of %d came back", len(got), len(text))
		}
	})
	t.Run("port-forward", func(t *testing.T) { portForward(kubectl{t, c, ns}) })
	t.Run("debug", func(t *testing.T) {
		k := kubectl{t, c, ns}
		// It sees the target's processes, and by them its files: among them the tool.
		k.talks("debug", "-i", "web", "--image="+s.HelloImage(), "--target=app", "--container=look", "--",
			"/proc/1/root"+toolPath, "tool", "lines")
		k.says("hello\nend\n", "logs", "web", "-c", "look")
	})
	t.Run("debug with a terminal", func(t *testing.T) {
		k := kubectl{t, c, ns}
		inTerminalUntil(t, k.command(t.Context(), "debug", "-it", "web", "--image="+s.HelloImage(), "--target=app", "--container=sit",
			"--", "/proc/1/root"+toolPath, "tool", "tty"), "end\r", "")
		ended := awaitAPIPod(t, c, ns, "web", func(p *corev1.Pod) error {
			for _, st := range p.Status.EphemeralContainerStatuses {
				if st.Name == "sit" && st.State.Terminated != nil {
					return nil
				}
			}
			return fmt.Errorf("%+v", p.Status.EphemeralContainerStatuses)
		})
		for _, st := range ended.Status.EphemeralContainerStatuses {
			if st.Name == "sit" && st.State.Terminated.ExitCode != 0 {
				t.Errorf("%+v", st.State.Terminated)
			}
		}
	})
	t.Run("raw", func(t *testing.T) {
		k := kubectl{t, c, ns}
		proxy := "/api/v1/nodes/" + n.Name + "/proxy"
		out, errs, code := k.run("", "get", "--raw", proxy+"/configz")
		var configz struct {
			Kubelet struct{ FailCgroupV1 *bool } `json:"kubeletconfig"`
		}
		if err := json.Unmarshal([]byte(out), &configz); err != nil || code != 0 || configz.Kubelet.FailCgroupV1 == nil ||
			*configz.Kubelet.FailCgroupV1 {
			t.Errorf("code %d, %s, %s, %v", code, out, errs, err)
		}
		out, errs, code = k.run("", "get", "--raw", proxy+"/pods")
		var pods corev1.PodList
		if err := json.Unmarshal([]byte(out), &pods); err != nil || code != 0 || len(pods.Items) != 1 || pods.Items[0].Name != "web" {
			t.Errorf("code %d, %s, %s, %v", code, out, errs, err)
		}
		if out, errs, code = k.run("", "get", "--raw", proxy+"/healthz"); code != 0 || out != "ok" {
			t.Errorf("code %d, %s, %s", code, out, errs)
		}
		for path, want := range map[string]string{
			"/metrics": "kubelet_running_pods 1\n", "/metrics/probes": "", "/metrics/slis": "process_start_time_seconds",
			"/metrics/cadvisor": `container="app"`, "/metrics/resource": `container_cpu_usage_seconds_total{container="app"`,
			"/stats/summary": `"nodeName"`, "/runningpods/": `"name":"web"`, "/flagz": "kubelet flagz", "/statusz": "kubelet statusz",
			"/containerLogs/" + ns + "/web/app": "one\ntwo\n",
		} {
			if out, errs, code := k.run("", "get", "--raw", proxy+path); code != 0 || !strings.Contains(out, want) {
				t.Errorf("%s: code %d, %.300s, %s", path, code, out, errs)
			}
		}
	})
	remove(t, c, ns, "web")
	awaitNoAPIPod(t, c, ns, "web")
}

// portForward transfers 1 GiB out of the pod and less into it through one connection, and less still through many at once: both
// ends compare the data.
func portForward(k kubectl) {
	ctx, cancel := context.WithCancel(k.Context())
	defer cancel()
	cmd := k.command(ctx, "port-forward", "web", ":7777", ":7778", "--address=127.0.0.1")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	must(k.T, err)
	must(k.T, cmd.Start())
	defer func() { cancel(); _ = cmd.Wait() }() // it was killed
	lines := bufio.NewReader(out)
	address := map[string]string{} // by the pod's port
	for range 2 {
		line, err := lines.ReadString('\n')
		found := regexp.MustCompile(`(127\.0\.0\.1:\d+) -> (\d+)`).FindStringSubmatch(line)
		if found == nil {
			k.Fatalf("%q, %v, %s", line, err, &errs)
		}
		address[found[2]] = found[1]
	}
	const size, in = 1 << 30, 64 << 20
	began := time.Now()
	if err := swapWith(ctx, address["7778"], in, size); err != nil {
		k.Errorf("1 GiB out, 64 MiB in: %v", err)
	}
	took := time.Since(began)
	k.Logf("1 GiB out and 64 MiB in through one connection took %s: %.0f MiB/s out", took.Round(time.Millisecond), size>>20/took.Seconds())
	began = time.Now()
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			if err := echoes(ctx, address["7777"], 128<<10); err != nil {
				k.Errorf("one of many: %v", err)
			}
		})
	}
	all.Wait()
	k.Logf("100 connections at once with 128 KiB each way took %s", time.Since(began).Round(time.Millisecond))
}

// echoes sends so many random bytes, and compares the checksum of the returned ones.
func echoes(ctx context.Context, address string, size int64) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // all was read
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	sent, came := sha256.New(), sha256.New()
	written := make(chan error, 1)
	go func() {
		source := rand.NewChaCha8([32]byte{byte(rand.Uint32())})
		_, err := io.CopyN(io.MultiWriter(conn, sent), source, size)
		written <- err
	}()
	n, err := io.CopyN(came, conn, size)
	if err := errors.Join(err, <-written); err != nil {
		return fmt.Errorf("%d bytes of %d came back: %w", n, size, err)
	}
	if !bytes.Equal(sent.Sum(nil), came.Sum(nil)) {
		return errors.New("other bytes came back than were sent")
	}
	return nil
}

// serve answers each connection to a port, until the client goes.
func serve(port string, answer func(net.Conn) error) error {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:"+port)
	if err != nil {
		return err
	}
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			if err := errors.Join(answer(conn), conn.Close()); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}()
	}
}

// echo sends its input back.
func echo(conn net.Conn) error {
	_, err := io.Copy(conn, conn)
	return err
}

// swapWith sends so many bytes to the tool "swap" at this address, and has it send so many.
func swapWith(ctx context.Context, address string, send, receive int64) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // all was read
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if err := binary.Write(conn, binary.BigEndian, [2]int64{receive, send}); err != nil {
		return err
	}
	return swap(conn, send, receive)
}

// answerSwap is the other end of swapWith.
func answerSwap(conn net.Conn) error {
	var sizes [2]int64
	if err := binary.Read(conn, binary.BigEndian, &sizes); err != nil {
		return err
	}
	return swap(conn, sizes[0], sizes[1])
}

// swap sends and receives so many random bytes at once. Each end sends the checksum of its received data, and then whether the
// other's checksum matches its sent data.
func swap(conn net.Conn, send, receive int64) error {
	sent, came := sha256.New(), sha256.New()
	written := make(chan error, 1)
	go func() {
		source := rand.NewChaCha8([32]byte{byte(rand.Uint32())})
		_, err := io.CopyN(io.MultiWriter(conn, sent), source, send)
		written <- err
	}()
	n, err := io.CopyN(came, conn, receive)
	if err := errors.Join(err, <-written); err != nil {
		return fmt.Errorf("%d bytes of %d came: %w", n, receive, err)
	}
	_, err = conn.Write(came.Sum(nil))
	reported, verdict := make([]byte, sha256.Size), []byte{'?'}
	if _, failed := io.ReadFull(conn, reported); err != nil || failed != nil {
		return errors.Join(err, failed)
	}
	right := bytes.Equal(reported, sent.Sum(nil))
	if right {
		verdict[0] = '='
	}
	_, err = conn.Write(verdict)
	if _, failed := io.ReadFull(conn, verdict); err != nil || failed != nil {
		return errors.Join(err, failed)
	}
	if !right || verdict[0] != '=' {
		return fmt.Errorf("other bytes arrived than were sent: ours %t, the other end's %t", !right, verdict[0] != '=')
	}
	return nil
}

// tarTool is as much of tar as kubectl cp and playlet cp ask a container for: "tar cf - [-C FOLDER] PATH" and "tar xmf - -C
// FOLDER".
func tarTool(args []string) error {
	folder, path := "/", args[len(args)-1]
	if i := slices.Index(args, "-C"); i > 0 {
		folder = args[i+1]
	}
	if strings.Contains(strings.TrimPrefix(args[0], "-"), "x") {
		return untar(folder)
	}
	out := tar.NewWriter(os.Stdout)
	err := filepath.WalkDir(filepath.Join(folder, path), func(file string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		target, _ := os.Readlink(file) // nothing where it is no link
		h, err := tar.FileInfoHeader(info, target)
		if err != nil {
			return err
		}
		if h.Name, err = filepath.Rel(folder, file); err != nil {
			return err
		}
		if err := out.WriteHeader(h); err != nil || !info.Mode().IsRegular() {
			return err
		}
		text, err := os.ReadFile(file)
		if err == nil {
			_, err = out.Write(text)
		}
		return err
	})
	return errors.Join(err, out.Close())
}

func untar(folder string) error {
	for in := tar.NewReader(os.Stdin); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		file := filepath.Join(folder, h.Name)
		switch h.Typeflag {
		case tar.TypeDir:
			err = os.MkdirAll(file, 0o755)
		case tar.TypeSymlink:
			err = os.Symlink(h.Linkname, file)
		default:
			text, failed := io.ReadAll(in)
			err = errors.Join(failed, os.WriteFile(file, text, 0o600))
		}
		if err != nil {
			return err
		}
	}
}
