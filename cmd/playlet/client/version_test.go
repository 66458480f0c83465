package client

import (
	"encoding/json"
	"os"
	"runtime"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cmd/playlet/client/fake"
	"github.com/playlet-dev/playlet/cmd/playlet/version"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestVersionCommand(t *testing.T) {
	version.Build = "v1.0.0"
	defer func() { version.Build = "" }()
	this := "Playlet: v1.0.0 (Kubernetes 1.36.3, " + runtime.Version() + ", " + runtime.GOOS + "/" + runtime.GOARCH + ")\n"
	f := fake.Start(t, newVersionCommand)
	f.Version = api.Version{
		Version: "v0.9.0", Kubernetes: "1.36.2", Go: "go1.26", Platform: "linux/amd64", PID: 7,
		Runtime: &api.Runtime{Name: "containerd", Version: "2.4.2", Ready: true},
	}
	out, notes, code := f.Command(t, "version")
	if want := this + "Agent:   v0.9.0 (Kubernetes 1.36.2, go1.26, linux/amd64)\nRuntime: containerd 2.4.2\n"; out != want ||
		notes != "" || code != 0 {
		t.Errorf("%d %q %q, want %q", code, out, notes, want)
	}
	// The agent reports 7, of a PID namespace that is not the command's.
	out, _, _ = f.Command(t, "version", "-o", "json")
	var v versions
	if err := json.Unmarshal([]byte(out), &v); err != nil || v.Client.Version != "v1.0.0" || v.Agent.PID != os.Getpid() ||
		v.Agent.Runtime.Name != "containerd" {
		t.Errorf("%v %s", err, out)
	}
	if out, _, _ = f.Command(t, "version", "-o", "yaml", "--client"); !strings.Contains(out, "client:\n") ||
		strings.Contains(out, "agent") {
		t.Errorf("%s", out)
	}
	f.Version.Runtime.Ready = false
	if out, _, _ = f.Command(t, "version"); !strings.HasSuffix(out, "Runtime: containerd 2.4.2, which is not ready\n") {
		t.Errorf("%s", out)
	}
	f.Version.Runtime = nil
	if out, _, _ = f.Command(t, "version"); !strings.HasSuffix(out, "Runtime: has not answered yet\n") {
		t.Errorf("%s", out)
	}
	f.Socket += "-none"
	if out, notes, code = f.Command(t, "version"); out != this+"Agent:   not running\n" || notes != "" || code != 0 {
		t.Errorf("%d %q %q", code, out, notes)
	}
	if out, _, _ = f.Command(t, "version", "--client"); out != this {
		t.Errorf("%q", out)
	}
	if _, notes, code = f.Command(t, "version", "-o", "xml"); code != 1 ||
		notes != "playlet: --output=\"xml\" is unknown; it may be json, yaml\n" {
		t.Errorf("%d %q", code, notes)
	}
}
