package agent

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/playlet-dev/playlet/cmd/playlet/cli"
	"github.com/playlet-dev/playlet/cmd/playlet/client"
	"github.com/playlet-dev/playlet/cri/sim"
)

// playlet runs a command against the rig's agent.
func (r *rig) playlet(args ...string) (stdout, stderr string, code int) {
	var out, err bytes.Buffer
	code = runCommand(append(args, "--admin-socket="+filepath.Join(r.dir, "admin.sock")), os.Stdin, &out, &err)
	return out.String(), err.String(), code
}

// runCommand runs one of the commands that ask the agent.
func runCommand(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := &cobra.Command{Use: "playlet"}
	root.SetIn(stdin)
	root.AddCommand(client.Commands()...)
	return cli.Main(root, args, stdout, stderr)
}

// untilPrinted repeats a command until it prints all of these.
func (r *rig) untilPrinted(args []string, want ...string) {
	r.t.Helper()
	for deadline := time.Now().Add(waitLimit); ; time.Sleep(20 * time.Millisecond) {
		out, notes, _ := r.playlet(args...)
		missing := false
		for _, w := range want {
			missing = missing || !strings.Contains(out+notes, w)
		}
		if !missing {
			return
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("playlet %s prints\n%s%s\nwant %q in it", strings.Join(args, " "), out, notes, want)
		}
	}
}

// TestCommandsOfARunningAgent is the commands against the whole agent, from the first manifest to after its end.
func TestCommandsOfARunningAgent(t *testing.T) {
	r := newRig(t, sim.Options{})
	if _, notes, code := r.playlet("pods"); code != 1 || !strings.HasPrefix(notes,
		"playlet: playlet is not running (no socket at ") {
		t.Errorf("before the start: %d %q", code, notes)
	}
	r.start(nil)
	r.write("web.yaml", manifest("web", "Always", nil, []string{"c hello", "d hello"}))
	r.write("bad.yaml", "apiVersion: v1\nkind: Pod\nmetadata:\n  name: bad\nspec:\n  nope: 1\n")
	r.untilPrinted([]string{"pods"}, "default     web-node   2/2     Running   0", "manifest problem: ", "bad.yaml:")
	r.untilPrinted([]string{"pods", "web-node", "-o", "yaml"}, "kind: Pod", "phase: Running", "name: web-node")
	r.untilPrinted([]string{"version"}, "Agent:   ", "Runtime: ")
	r.untilPrinted([]string{"top"}, "CAUSE\n", "default     web-node   2/2     Running   0")
	r.untilPrinted([]string{"top", "pods", "--containers"}, "default     web-node   c ", "default     web-node   d ")
	r.untilPrinted([]string{"top", "node", "-o", "json"}, `"nodeName": "node"`, `"workingSetBytes"`, `"allocatable"`, `"residentBytes"`)
	if out, notes, code := r.playlet("pods", "web", "-n", "default"); code != 0 || !strings.Contains(out, "web-node ") {
		t.Errorf("by the name in the manifest: %d %q %q", code, out, notes)
	}
	if _, notes, code := r.playlet("pods", "we", "-n", "default"); code != 1 ||
		!strings.HasSuffix(notes, "there is no pod \"we\" in namespace \"default\"; did you mean default/web? (playlet pods lists them)\n") {
		t.Errorf("a name that is none: %d %q", code, notes)
	}
	if out, _, code := r.playlet("pods", "-o", "wide"); code != 0 || !strings.Contains(out, "sources/file") ||
		!strings.Contains(out, "running") {
		t.Errorf("%d\n%s", code, out)
	}
	if got := r.health(); !strings.HasSuffix(got, "healthz check passed\n") ||
		!strings.Contains(got, "[+]sources ok\n    "+r.manifests+"/bad.yaml:") {
		t.Errorf("%s", got)
	}
	r.remove("web.yaml")
	r.untilPrinted([]string{"pods"}, "no pods")
	r.stop()
	if _, notes, code := r.playlet("pods"); code != 1 || !strings.HasPrefix(notes,
		"playlet: playlet is not running (no socket at ") {
		t.Errorf("after the end: %d %q", code, notes)
	}
}

// health asks for /healthz on the admin socket.
func (r *rig) health() string {
	r.t.Helper()
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", filepath.Join(r.dir, "admin.sock"))
	}
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, "http://playlet/healthz?verbose", nil)
	if err != nil {
		r.t.Fatal(err)
	}
	resp, err := (&http.Transport{DisableKeepAlives: true, DialContext: dial}).RoundTrip(req)
	if err != nil {
		r.t.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		r.t.Fatal(err)
	}
	return string(text)
}

// The agent is started by its own command line; a wrong one, or one that cannot start, leaves nothing running.
func TestAnAgentInThisProcess(t *testing.T) {
	r := newRig(t, sim.Options{})
	root := filepath.Join(r.dir, "root")
	args := []string{
		"--root-dir=" + root, "--pod-manifest-path=" + r.manifests, "--fail-cgroupv1=false", "--healthz-port=0", "--enable-server=false",
		"--container-runtime-endpoint=" + r.runtime.Endpoint(), "--admin-socket=" + filepath.Join(r.dir, "admin.sock"),
		"--hostname-override=vm", "--node-ip=192.0.2.7", "--log-links-dir=" + filepath.Join(r.dir, "links"),
	}
	config := filepath.Join(r.dir, "config.yaml")
	text := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\npodLogsDir: " + r.dir + "/logs\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	args = append(args, "--config="+config)
	for range 2 { // the second finds nothing of the first
		a, err := Start(args, r.log)
		if err != nil {
			t.Fatal(err)
		}
		if a.NodeName() != "vm" {
			t.Errorf("the node is %s", a.NodeName())
		}
		if _, err := Start(args, r.log); err == nil || !strings.Contains(err.Error(), root) {
			t.Errorf("a second one beside it: %v", err)
		}
		r.untilPrinted([]string{"pods"}, "no pods")
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, wrong := range []string{"--nonsense", "--config=/nowhere"} {
		if _, err := Start([]string{wrong}, r.log); err == nil {
			t.Errorf("%s is taken", wrong)
		}
	}
}
