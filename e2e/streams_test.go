//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/e2e/stack"
)

// attach, port-forward and cp of the admin socket: data comes back, and so do ends.
func TestStreams(t *testing.T) {
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		a, data := agentWith(t, s, func(a *stack.Agent) { quick(a); a.Args = append(a.Args, "--enable-chaos") }), t.TempDir()
		must(t, a.Write("web.yaml", manifest(s, "web", strings.ReplaceAll(withTool(t, `
terminationGracePeriodSeconds: 1
containers:
- {name: app, image: HELLO, args: [sleep], env: [{name: PATH, value: /usr/bin}], TOOL}
- {name: cat, image: HELLO, command: [/tool/run, tool, cat], stdin: true, stdinOnce: true, TOOL}
- {name: echo, image: HELLO, command: [/tool/run, tool, echo, '7777'], ports: [{name: echo, containerPort: 7777}], TOOL}
- {name: bare, image: HELLO, args: [sleep]}`, data),
			"{name: data, mountPath", "{name: tool, mountPath: /usr/bin/tar}, {name: data, mountPath"))))
		awaitPod(t, a, "web", func(p *corev1.Pod) error {
			for _, name := range []string{"app", "cat", "echo", "bare"} {
				if statusOf(p, name).State.Running == nil {
					return fmt.Errorf("container %s: %+v", name, statusOf(p, name))
				}
			}
			return nil
		})
		socket := "--admin-socket=" + a.AdminSocket
		attached(t, socket)
		forwarded(t, a, socket)
		copied(t, data, socket)
		must(t, a.Remove("web.yaml"))
		cleared(t, s, a)
	})
}

func attached(t *testing.T, socket string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, program(), "attach", socket, "-i", "web", "-c", "cat")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	_, err = io.WriteString(in, "hello\n")
	must(t, err)
	line, _ := bufio.NewReader(out).ReadString('\n')
	must(t, in.Close()) // which ends the process, and so the command
	if err := cmd.Wait(); err != nil || line != "hello\n" || errs.String() != "" {
		t.Errorf("%v, %q, %q", err, line, &errs)
	}
	if _, errs, code := playlet(t, "attach", socket, "-i", "web", "-c", "app"); code != 1 ||
		errs != "playlet: container \"app\" reads no input: its spec lacks stdin: true; attach without -i\n" {
		t.Errorf("%d %q", code, errs)
	}
}

func forwarded(t *testing.T, a *stack.Agent, socket string) {
	t.Helper()
	w := begin(t, "port-forward", socket, "pod/web", ":echo", ":7778", "--address=127.0.0.1")
	var addresses []string
	await(t, func() error {
		if addresses = regexp.MustCompile(`127\.0\.0\.1:\d+`).FindAllString(w.log.String(), -1); len(addresses) < 2 {
			return fmt.Errorf("%s", w.log.String())
		}
		return nil
	})
	if err := echoes(t.Context(), addresses[0], 4<<20); err != nil {
		t.Error(err)
	}
	// A port at which nothing listens is spoken of, and the other goes on.
	if err := echoes(t.Context(), addresses[1], 1); err == nil {
		t.Error("nobody listens on 7778")
	}
	w.says(t, "port 7778 of pod default/"+onNode("web")+": nothing listens there")
	if err := echoes(t.Context(), addresses[0], 1<<20); err != nil {
		t.Error(err)
	}
	if _, errs, code := playlet(t, "port-forward", socket, "--address=127.0.0.1", "web",
		strings.TrimPrefix(addresses[0], "127.0.0.1:")+":7777"); code != 1 ||
		!strings.Contains(errs, "of this machine: another program listens there") || strings.Count(errs, "\n") != 1 {
		t.Errorf("%d %q", code, errs)
	}
	streamsOutliveTheServer(t, a, socket, addresses[0])
	must(t, a.Kill9())
	must(t, a.Start())
	settled(t, a)
	await(t, func() error { return echoes(t.Context(), addresses[0], 1) })
	w.end(t, syscall.SIGINT)
}

// streamsOutliveTheServer kills the actor of the listeners below a command, a log that is followed and a connection to a port.
func streamsOutliveTheServer(t *testing.T, a *stack.Agent, socket, address string) {
	t.Helper()
	awaitPod(t, a, "web", func(p *corev1.Pod) error { // it ended with the attached input
		if c := statusOf(p, "cat"); c.State.Running == nil || c.RestartCount == 0 {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	conn, err := net.Dial("tcp", address)
	must(t, err)
	defer conn.Close() //nolint:errcheck // all was read
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	must(t, conn.SetDeadline(time.Now().Add(waitLimit)))
	talker := func(args ...string) (io.WriteCloser, io.Reader, *exec.Cmd) {
		cmd := exec.CommandContext(ctx, program(), args...)
		in, err := cmd.StdinPipe()
		must(t, err)
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		return in, out, cmd
	}
	in, out, cat := talker("exec", socket, "-i", "web", "-c", "app", "--", toolPath, "tool", "cat")
	_, log, follower := talker("logs", socket, "-f", "web", "-c", "cat")
	read := func(from io.Reader, want string) {
		t.Helper()
		got := make([]byte, len(want))
		if n, err := io.ReadFull(from, got); err != nil || string(got) != want {
			t.Errorf("%q, %v, want %q", got[:n], err, want)
		}
	}
	talk := func(word string) {
		t.Helper()
		for _, to := range []io.Writer{conn, in} {
			_, err := io.WriteString(to, word)
			must(t, err)
		}
		read(conn, word)
		read(out, word)
	}
	talk("before\n")
	if _, notes, code := playlet(t, "chaos", "kill", "server", socket); code != 0 {
		t.Fatalf("%d %s", code, notes)
	}
	talk("after\n")
	must(t, in.Close())
	if err := cat.Wait(); err != nil {
		t.Error(err)
	}
	attached(t, socket) // which is the log's first line
	read(log, "hello\n")
	cancel()
	_ = follower.Wait() // it was killed
}

func copied(t *testing.T, data, socket string) {
	t.Helper()
	cp := func(from, to string) {
		t.Helper()
		if out, errs, code := playlet(t, "cp", socket, "-c", "app", from, to); out != "" || errs != "" || code != 0 {
			t.Errorf("cp %s %s: %d %q %q", from, to, code, out, errs)
		}
	}
	dir := t.TempDir()
	big := bytes.Repeat([]byte("what comes in goes out\n"), 200_000)
	must(t, os.MkdirAll(filepath.Join(dir, "there/d"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "there/big"), big, 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "there/d/a"), []byte("a"), 0o600))
	must(t, os.Symlink("../big", filepath.Join(dir, "there/d/l")))
	cp(filepath.Join(dir, "there"), "web:/data/here")
	if got, err := os.ReadFile(filepath.Join(data, "here/d/l")); err != nil || !bytes.Equal(got, big) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	cp("web:/data/here", filepath.Join(dir, "back"))
	got, err := os.ReadFile(filepath.Join(dir, "back/d/l"))
	if target, _ := os.Readlink(filepath.Join(dir, "back/d/l")); err != nil || !bytes.Equal(got, big) || target != "../big" {
		t.Errorf("%d bytes, %v, %q", len(got), err, target)
	}
	cp("default/web:/data/here/d/a", dir)
	if got, err := os.ReadFile(filepath.Join(dir, "a")); err != nil || string(got) != "a" {
		t.Errorf("%q, %v", got, err)
	}
	// A link in the container that leads out of the target is left out.
	must(t, os.Symlink("/etc/passwd", filepath.Join(data, "here/out")))
	if _, errs, code := playlet(t, "cp", socket, "-c", "app", "web:/data/here", filepath.Join(dir, "again")); code != 0 ||
		errs != "out is a link that leads out of what is copied (/etc/passwd), and is left out\n" {
		t.Errorf("%d %q", code, errs)
	}
	for want, args := range map[string][]string{
		"playlet: the container of pod default/" + onNode("web") + " has no tar, which is needed to copy; " +
			"playlet exec reads a file without it: playlet exec " + onNode("web") + " -- cat FILE\n": {"-c", "bare", "web:/hello", dir},
		"/data/none": {"-c", "app", "web:/data/none", dir},
	} {
		if _, errs, code := playlet(t, append([]string{"cp", socket}, args...)...); code != 1 || !strings.Contains(errs, want) {
			t.Errorf("%v: %d %q, want %q", args, code, errs, want)
		}
	}
}
