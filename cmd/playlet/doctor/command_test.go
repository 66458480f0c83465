package doctor

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cmd/playlet/cli"
	"github.com/playlet-dev/playlet/config/systemd"
)

func TestDoctorRefusesInOneLine(t *testing.T) {
	for args, want := range map[string]string{
		"doctor nothing":        `there is no check "nothing"; there are configuration, agent, `,
		"doctor --skip=nothing": `there is no check "nothing"`,
		"doctor -o xml":         `--output="xml" is unknown; it may be table, json, yaml`,
		"doctor --nonsense":     "unknown flag: --nonsense (playlet doctor --help lists the flags)",
	} {
		var out, problems bytes.Buffer
		code := run(strings.Fields(args), &out, &problems)
		if code != 1 || out.Len() > 0 || !strings.HasPrefix(problems.String(), "playlet: "+want) ||
			strings.Count(problems.String(), "\n") != 1 {
			t.Errorf("%s: %d %q %q", args, code, &out, &problems)
		}
	}
}

// The help lists the checks, and of the agent's flags those that matter here; all of them are taken.
func TestDoctorHelps(t *testing.T) {
	var out, problems bytes.Buffer
	if code := run([]string{"doctor", "--help"}, &out, &problems); code != 0 {
		t.Fatal(code, &problems)
	}
	for _, c := range Checks {
		if !strings.Contains(out.String(), "\n  "+c.Name+" ") {
			t.Errorf("the check %s is not listed", c.Name)
		}
	}
	for _, want := range []string{"--cni-conf-dir folder", "--config file", "--skip checks", "playlet doctor -o json"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, &out)
		}
	}
	if strings.Contains(out.String(), "--max-pods") {
		t.Error("the agent's flags are listed")
	}
	out.Reset()
	if code := run([]string{"doctor", "manifests", "--max-pods=3", "--root-dir=" + t.TempDir()}, &out, &problems); code != 0 ||
		!strings.Contains(out.String(), "ok    manifests  no folder is configured; pods are submitted (playlet run)\n\n1 passed, ") {
		t.Errorf("%d %s %s", code, &out, &problems)
	}
}

// A configuration with which the agent would not start is a finding, for programs too.
func TestDoctorOnABadConfiguration(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(file, []byte("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: many\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	var out, problems bytes.Buffer
	code := run([]string{"doctor", "-o", "json", "--config=" + file}, &out, &problems)
	var report report
	if err := json.Unmarshal(out.Bytes(), &report); err != nil || code != 1 ||
		problems.String() != "playlet: not fit: configuration\n" {
		t.Fatalf("%d %v %s %s", code, err, &out, &problems)
	}
	if report.Fit || report.Fail != 1 || len(report.Findings) != 1 || !strings.Contains(report.Findings[0].Seen, "maxPods") ||
		report.Findings[0].Do == "" {
		t.Errorf("%+v", report)
	}
}

// Without --config the installed service is looked at: the flags of its unit and the configuration that they name. Flags that are
// given here change it.
func TestDoctor_InstalledService(t *testing.T) {
	root := t.TempDir()
	file := filepath.Join(root, "mine.yaml")
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const unit = "/etc/systemd/system/playlet.service"
	t.Setenv(cli.SocketVariable, filepath.Join(root, "none.sock"))
	write(filepath.Join(root, unit), systemd.Unit("/usr/bin/playlet", file))
	const header = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	doctor := func(args ...string) (string, int) {
		t.Helper()
		var out bytes.Buffer
		cmd := &cobra.Command{Use: "playlet"}
		cmd.AddCommand(newCommand(root))
		code := cli.Main(cmd, append([]string{"doctor", "configuration", "manifests"}, args...), &out, &out)
		return out.String(), code
	}
	write(file, header+"staticPodPath: "+root+"/none\n")
	if out, code := doctor("--hostname-override=given"); code != 0 || !strings.Contains(out, unit+", "+file+"; node given,") ||
		!strings.Contains(out, root+"/none does not exist") {
		t.Errorf("the installed service: %d\n%s", code, out)
	}
	if out, _ := doctor("--config="); !strings.Contains(out, "flags and defaults") || !strings.Contains(out, "no folder is configured") {
		t.Errorf("the defaults:\n%s", out)
	}
	write(file, header+"staticPodPth: /etc\n")
	if out, code := doctor(); code != 1 || !strings.Contains(out, `unknown field "staticPodPth", line 3: did you mean staticPodPath?`) {
		t.Errorf("an unknown field: %d\n%s", code, out)
	}
}

// An agent that answers, such as that of playlet dev, is checked instead of the defaults and of a service with another root
// folder.
func TestDoctor_RunningAgent(t *testing.T) {
	root := t.TempDir()
	config := filepath.Join(root, "kubelet.yaml")
	must(t, os.WriteFile(config, []byte("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nstaticPodPath: "+root+
		"/none\n"), 0o600))
	running := api.Version{Version: "v1", PID: 7, RootDir: root + "/node",
		Args: []string{"--config=" + config, "--root-dir=" + root + "/node", "--hostname-override=dev"}}
	var answer any = &running
	socket := filepath.Join(root, "s")
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
	must(t, err)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(answer)
	})}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close(); <-done })
	t.Setenv(cli.SocketVariable, socket)
	doctor := func(want string, args ...string) {
		t.Helper()
		var out bytes.Buffer
		cmd := &cobra.Command{Use: "playlet"}
		cmd.AddCommand(newCommand(root))
		cli.Main(cmd, append([]string{"doctor", "configuration"}, args...), &out, &out)
		if line, _, _ := strings.Cut(out.String(), "\n"); line != want {
			t.Errorf("%q:\n%s\nwant\n%s", args, line, want)
		}
	}
	agent := fmt.Sprintf("ok    configuration  the running agent, process %d: ", os.Getpid())
	doctor(agent + config + "; node dev, root folder " + root + "/node")
	doctor(agent+config+"; node mine, root folder "+root+"/node", "--hostname-override=mine")
	doctor("ok    configuration  flags and defaults; node mine, root folder /other", "--hostname-override=mine", "--root-dir=/other")
	doctor("ok    configuration  flags and defaults; node mine, root folder /var/lib/kubelet", "--hostname-override=mine", "--config=")
	t.Setenv(cli.SocketVariable, "")
	doctor(agent+config+"; node dev, root folder "+root+"/node", "--admin-socket="+socket)
	doctor("ok    configuration  flags and defaults, as no agent answers at "+socket+"-none and no service is installed; node mine, "+
		"root folder /var/lib/kubelet", "--hostname-override=mine", "--admin-socket="+socket+"-none")

	// An agent without flags has its defaults; one of an older version does not report its flags.
	running.Args, running.RootDir = []string{}, "/var/lib/kubelet"
	doctor(agent+"its flags and defaults; node mine, root folder /var/lib/kubelet", "--admin-socket="+socket, "--hostname-override=mine")
	running.Args = nil
	doctor("ok    configuration  flags and defaults; node mine, root folder /var/lib/kubelet", "--admin-socket="+socket,
		"--hostname-override=mine")

	// The installed service is checked with the flags of its files, which the next start uses.
	running.Args = []string{"--hostname-override=dev"}
	unit := filepath.Join(root, "/etc/systemd/system/playlet.service")
	must(t, os.MkdirAll(filepath.Dir(unit), 0o700))
	must(t, os.WriteFile(unit, []byte(systemd.Unit("/usr/bin/playlet", config)), 0o600))
	doctor("ok    configuration  /etc/systemd/system/playlet.service, "+config+"; node mine, root folder /var/lib/kubelet",
		"--admin-socket="+socket, "--hostname-override=mine")
	running.Args = append(running.Args, "--root-dir="+root+"/node")
	doctor(agent+"its flags and defaults; node dev, root folder "+root+"/node", "--admin-socket="+socket)
}

// The table has no colours when it is not on a terminal, and no control sequences from its data.
func TestPrintFindings(t *testing.T) {
	var out bytes.Buffer
	err := printFindings(&out, []Finding{
		{Check: "a", Result: OK, Seen: "fine"}, {Check: "longer", Result: Fail, Seen: "bad\n\x1b[31m", Do: "mend it"},
	})
	want := "ok    a       fine\nfail  longer  bad [31m\n              → mend it\n\n1 passed, 0 warnings, 1 failed, 0 skipped\n"
	if err != nil || out.String() != want {
		t.Errorf("%v %q", err, &out)
	}
}

// run is playlet with these arguments.
func run(args []string, stdout, stderr io.Writer) int {
	root := &cobra.Command{Use: "playlet"}
	root.AddCommand(NewCommand())
	return cli.Main(root, args, stdout, stderr)
}
