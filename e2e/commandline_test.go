//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/playlet-dev/playlet/e2e/isolate"
	"github.com/playlet-dev/playlet/e2e/stack"
)

// program is the binary under test.
func program() string { return filepath.Join(isolate.Dir(), "playlet") }

// playlet runs the binary until it ends.
func playlet(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, program(), args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok {
		must(t, err)
	} else if !exit.Exited() {
		t.Fatalf("playlet %v: %v\n%s", args, err, errs.String())
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// put writes a file, with the folders above it.
func put(t *testing.T, path, text string) string {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// configuration is a KubeletConfiguration with these fields.
func configuration(fields string) string {
	return "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n" + fields + "\n"
}

// A wrong command line, whatever is wrong about it, gives one line on stderr that names it, exit code 1, and an agent that
// has not begun: none of its folders is there.
func TestWrongCommandLines(t *testing.T) {
	dir := t.TempDir()
	good := put(t, dir+"/good.yaml", configuration("failCgroupV1: false"))
	misfit := put(t, dir+"/misfit.yaml", configuration("maxPods: many"))
	broken := put(t, dir+"/broken.yaml", "{[")
	put(t, dir+"/wrong.d/10.conf", configuration("healthzPort: soon"))
	parent := filepath.Join(dir, "none")
	for _, c := range []struct {
		args  []string
		words []string
	}{
		{[]string{"--bogus=1"}, []string{"unknown flag", "--bogus", "playlet help flags"}},
		{[]string{"bogus"}, []string{"unknown command", `"bogus"`, "--help"}},
		{[]string{"--config"}, []string{"--config"}},
		{[]string{"--healthz-port=soon"}, []string{`"soon"`, "--healthz-port"}},
		{[]string{"--healthz_port=soon"}, []string{`"soon"`, "--healthz-port"}},
		{[]string{"--node-ip=x"}, []string{"--node-ip", `"x"`}},
		{[]string{"--healthz-port=70000", "--max-pods=-1"}, []string{"--healthz-port", "70000", "--max-pods", "-1"}},
		{[]string{"--feature-gates=NoSuchGate=true"}, []string{"NoSuchGate"}},
		{[]string{"--container-runtime-endpoint=tcp://x:1"}, []string{"--container-runtime-endpoint", "tcp://x:1"}},
		{[]string{"--config=" + dir + "/absent.yaml"}, []string{"--config", dir + "/absent.yaml", "no such file"}},
		{[]string{"--config=" + misfit}, []string{misfit, "maxPods"}},
		{[]string{"--config=" + broken}, []string{broken, "line 1"}},
		{[]string{"--config=" + good, "--config-dir=" + dir + "/absent.d"}, []string{"--config-dir", dir + "/absent.d"}},
		{[]string{"--config=" + good, "--config-dir=" + dir + "/wrong.d"}, []string{dir + "/wrong.d/10.conf", "healthzPort"}},
	} {
		stdout, stderr, code := playlet(t, append([]string{
			"--root-dir=" + parent + "/root", "--admin-socket=" + parent + "/admin.sock", "--fail-cgroupv1=false",
		}, c.args...)...)
		if code != 1 || stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.HasPrefix(stderr, "playlet: ") {
			t.Errorf("%v: exit code %d, %q, stderr %q", c.args, code, stdout, stderr)
		}
		for _, word := range c.words {
			if !strings.Contains(stderr, word) {
				t.Errorf("%v: %q is not named: %s", c.args, word, stderr)
			}
		}
		if !absent(parent) {
			t.Fatalf("%v: the agent has made its folders", c.args)
		}
	}
}

// agentProcess is the agent with a command line of the test's own.
type agentProcess struct {
	cmd *exec.Cmd
	log *syncBuffer
}

// syncBuffer is written by one goroutine and read by another.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// begin starts the binary; the end of the test ends it.
func begin(t *testing.T, args ...string) *agentProcess {
	t.Helper()
	p := &agentProcess{cmd: exec.Command(program(), args...), log: &syncBuffer{}}
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	must(t, p.cmd.Start())
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait() // as it was killed
		}
		if t.Failed() {
			t.Logf("playlet %v wrote\n%s", args, p.log)
		}
	})
	return p
}

// end sends a signal to the process, and expects it to exit with 0.
func (p *agentProcess) end(t *testing.T, s syscall.Signal) {
	t.Helper()
	must(t, p.cmd.Process.Signal(s))
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}

// says waits until a line of the process's output has all these words.
func (p *agentProcess) says(t *testing.T, words ...string) {
	t.Helper()
	await(t, func() error {
		for line := range strings.Lines(p.log.String()) {
			missing := ""
			for _, w := range words {
				if !strings.Contains(line, w) {
					missing = w
				}
			}
			if missing == "" {
				return nil
			}
		}
		return fmt.Errorf("no line has all of %q", words)
	})
}

// healthy waits until /healthz answers with 200 on a port.
func healthy(t *testing.T, port int) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	await(t, func() error {
		resp, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d/healthz", port))
		if err != nil {
			return err
		}
		if resp.StatusCode != http.StatusOK {
			err = errors.New(resp.Status)
		}
		return errors.Join(err, resp.Body.Close())
	})
}

// Drop-ins override the file, and flags, in any spelling, override both: the agent's behaviour shows the effective configuration.
// Flags of older kubelets are named in a warning.
func TestWhatIsConfiguredIsInForce(t *testing.T) {
	s := stack.Start(t, stack.Options{})
	dir := t.TempDir()
	for _, name := range []string{"file", "dropin", "line", "folder"} {
		put(t, filepath.Join(dir, name, "pod.yaml"), manifest(s, name, sleeper))
	}
	const machine = "failCgroupV1: false\ncgroupDriver: cgroupfs\nhealthzPort: 10901\n"
	logs := "podLogsDir: " + dir + "/logs\n"
	config := put(t, dir+"/config.yaml", configuration(machine+logs+
		"containerRuntimeEndpoint: unix:///nowhere\nstaticPodPath: "+dir+"/file"))
	put(t, dir+"/config.d/10-first.conf", configuration("staticPodPath: "+dir+"/nowhere\nhealthzPort: 10902"))
	put(t, dir+"/config.d/20-second.conf",
		configuration("staticPodPath: "+dir+"/dropin\ncontainerRuntimeEndpoint: unix://"+s.Socket()))
	common := []string{"--root-dir=" + dir + "/root", "--admin-socket=" + dir + "/admin.sock", "--node_ip=" + isolate.NodeIP,
		"--log-links-dir=" + dir + "/links"}

	p := begin(t, append(common, "--config="+config, "--config-dir="+dir+"/config.d", "--healthz_port=10903",
		"--allow-privileged=true", "--network-plugin=cni", "--v=2")...)
	healthy(t, 10903)
	for _, port := range []string{"10901", "10902"} {
		if conn, err := net.Dial("tcp", "127.0.0.1:"+port); err == nil {
			t.Errorf("it listens on %s, which was overridden", port)
			must(t, conn.Close())
		}
	}
	up(t, s, "dropin", "c")
	p.says(t, "WARN", "--allow-privileged", "ignored")
	p.says(t, "WARN", "--network-plugin", "ignored")
	p.says(t, "WARN", "--healthz-port", "deprecated", "healthzPort", "the flag wins")
	p.end(t, syscall.SIGTERM)

	// The flag overrides the drop-in, and pods of the drop-in's folder end.
	p = begin(t, append(common, "--config="+config, "--config-dir="+dir+"/config.d", "--pod-manifest-path="+dir+"/line")...)
	up(t, s, "line", "c")
	await(t, func() error {
		if left := containersOf(t, s, "dropin"); len(left) > 0 {
			return fmt.Errorf("of the other pod there is %v", left)
		}
		return nil
	})
	p.end(t, syscall.SIGINT)

	// A folder for --config is a manifest folder, as it was once.
	put(t, dir+"/machine.d/10.conf", configuration(machine+logs+"containerRuntimeEndpoint: unix://"+s.Socket()))
	p = begin(t, append(common, "--config="+dir+"/folder", "--config-dir="+dir+"/machine.d")...)
	up(t, s, "folder", "c")
	p.says(t, "WARN", "--config", dir+"/folder", "manifest folder", "--pod-manifest-path")
	if left := containersOf(t, s, "file"); len(left) > 0 {
		t.Errorf("of what the file names, which was overridden each time, there is %v", left)
	}
	must(t, os.Remove(dir+"/folder/pod.yaml"))
	nothing(t, s)
	p.end(t, syscall.SIGTERM)

	p = begin(t, append(common, "--config-dir="+dir+"/machine.d")...)
	p.says(t, "WARN", "no source of pods", "--pod-manifest-path")
	healthy(t, 10901)
	p.end(t, syscall.SIGTERM)
}
