package service

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/playlet-dev/playlet/cmd/playlet/cli"
	"github.com/playlet-dev/playlet/config/systemd"
)

// machine is a made-up root folder with a systemctl that records its commands.
type machine struct {
	installer
	sent    []string
	kubelet string // the output of is-active for it
	fails   string // the verb that fails
	output  bytes.Buffer
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{kubelet: "inactive"}
	root := t.TempDir()
	self := filepath.Join(root, "download", "playlet")
	for _, dir := range []string{filepath.Dir(self), filepath.Join(root, systemdLives)} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(self, []byte("the program"), 0o755); err != nil {
		t.Fatal(err)
	}
	m.installer = installer{root: root, self: self, binary: "/usr/local/bin/playlet", config: "/etc/playlet/config.yaml",
		out: &m.output}
	m.refuse = func(_ context.Context, args []string) error {
		for _, a := range args {
			file, ok := strings.CutPrefix(a, "--config=")
			if !ok {
				continue
			}
			if !strings.HasPrefix(file, os.TempDir()) {
				file = filepath.Join(root, file)
			}
			if text, err := os.ReadFile(file); err != nil || strings.Contains(string(text), "nonsense") {
				return errors.New("it is nonsense")
			}
		}
		return nil
	}
	m.systemctl = func(_ context.Context, args ...string) (string, error) {
		line := strings.Join(args, " ")
		if line == "is-active kubelet.service" {
			return m.kubelet + "\n", nil
		}
		m.sent = append(m.sent, line)
		if args[0] == m.fails {
			return "it failed\n", errors.New("exit status 1")
		}
		return "", nil
	}
	return m
}

func (m *machine) content(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(m.root, file))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return string(data)
}

func TestInstallAndUninstall(t *testing.T) {
	m := newMachine(t)
	for range 2 { // the second time it is an upgrade
		m.sent = nil
		if err := m.install(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(m.sent, "; "); got != "daemon-reload; enable playlet.service; restart playlet.service" {
			t.Errorf("systemctl was told %q", got)
		}
		if got := m.content(t, m.binary); got != "the program" {
			t.Errorf("the program is %q", got)
		}
		if got := m.content(t, "/etc/systemd/system/playlet.service"); !strings.Contains(got,
			"ExecStart=/usr/local/bin/playlet --config=/etc/playlet/config.yaml") {
			t.Errorf("the unit is %s", got)
		}
		// The configuration may hold a secret, e.g. the headers of staticPodURL.
		for file, mode := range map[string]os.FileMode{m.binary: 0o755, m.config: 0o600} {
			if info, err := os.Stat(filepath.Join(m.root, file)); err != nil || info.Mode().Perm() != mode {
				t.Errorf("%s: %v, %v", file, info, err)
			}
		}
	}
	if err := os.WriteFile(filepath.Join(m.root, m.config), []byte("changed by hand"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := m.install(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := m.content(t, m.config); got != "changed by hand" ||
		!strings.Contains(m.output.String(), "kept /etc/playlet/config.yaml") {
		t.Errorf("the configuration file is %q; %s", got, m.output.String())
	}

	m.sent = nil
	for range 2 { // the second time there is nothing to do
		if err := m.uninstall(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if !strings.Contains(m.output.String(), "nothing was installed: there is no /etc/systemd/system/playlet.service, no /usr/local/bin/playlet") {
		t.Errorf("the second time: %s", m.output.String())
	}
	if got := strings.Join(m.sent, "; "); got != "disable --now playlet.service; daemon-reload; daemon-reload" {
		t.Errorf("systemctl was told %q", got)
	}
	if m.content(t, m.binary) != "" || m.content(t, "/etc/systemd/system/playlet.service") != "" || m.content(t, m.config) == "" {
		t.Error("not what was to go has gone")
	}
	m.purge = true
	if err := m.uninstall(t.Context()); err != nil || m.content(t, m.config) != "" {
		t.Errorf("purged: %v", err)
	}
}

// withKubelet installs a running kubelet of kubeadm, with static pods in a folder that is returned.
func (m *machine) withKubelet(t *testing.T) string {
	t.Helper()
	m.kubelet = "active"
	pods := filepath.Join(t.TempDir(), "manifests")
	config := filepath.Join(t.TempDir(), "config.yaml")
	for path, text := range map[string]string{
		filepath.Join(m.root, "/usr/lib/systemd/system/kubelet.service"): "[Service]\nEnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env\n" +
			"ExecStart=/usr/bin/kubelet --config=" + config + " $KUBELET_KUBEADM_ARGS\n",
		config: "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nstaticPodPath: " + pods + "\n",
	} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return pods
}

// A take-over that fails leaves no drop-in, with which the next boot would start playlet or a program that is absent.
func TestInstall_FailedTakeoverLeavesNoDropIn(t *testing.T) {
	for name, spoil := range map[string]func(*machine) error{
		"the program cannot be written": func(m *machine) error {
			m.binary = "/opt/file/playlet"
			return errors.Join(os.Mkdir(filepath.Join(m.root, "opt"), 0o755),
				os.WriteFile(filepath.Join(m.root, "opt/file"), nil, 0o600))
		},
		"daemon-reload fails": func(m *machine) error { m.fails = "daemon-reload"; return nil },
		"restart fails":       func(m *machine) error { m.fails = "restart"; return nil },
	} {
		m := newMachine(t)
		m.withKubelet(t)
		m.replaceKubelet = true
		if err := spoil(m); err != nil {
			t.Fatal(err)
		}
		if err := m.install(t.Context()); err == nil {
			t.Errorf("%s: no error", name)
		}
		if text := m.content(t, systemd.TakeoverPath); text != "" {
			t.Errorf("%s: the drop-in is left:\n%s", name, text)
		}
	}
}

// A kubelet may have another root folder than the default.
func TestInstall_NamesVolumesInTheKubeletsRootFolder(t *testing.T) {
	m := newMachine(t)
	m.withKubelet(t)
	m.replaceKubelet, m.dryRun = true, true
	arguments := filepath.Join(m.root, "var/lib/kubelet/kubeadm-flags.env")
	device := filepath.Join(m.root, "data/kubelet/pods/u/volumeDevices/kubernetes.io~iscsi/pv")
	err := errors.Join(os.MkdirAll(filepath.Dir(device), 0o750), os.Symlink("/dev/null", device),
		os.MkdirAll(filepath.Dir(arguments), 0o755),
		os.WriteFile(arguments, []byte("KUBELET_KUBEADM_ARGS=--root-dir=/data/kubelet\n"), 0o600), m.install(t.Context()))
	if out := m.output.String(); err != nil || !strings.Contains(out, "not managed by playlet: "+device+" is a block device") {
		t.Errorf("the kubelet's block device is not named: %v\n%s", err, out)
	}
}

func TestInstall_ReplacesTheKubeletWhenAsked(t *testing.T) {
	m := newMachine(t)
	pods := m.withKubelet(t)
	for _, m.kubelet = range []string{"activating", "active"} {
		if err := m.install(t.Context()); err == nil || !strings.Contains(err.Error(), "--replace-kubelet") ||
			m.content(t, m.binary) != "" {
			t.Errorf("a kubelet that is %s: got the error %v", m.kubelet, err)
		}
	}
	m.replaceKubelet = true
	device := filepath.Join(m.root, "/var/lib/kubelet/pods/u/volumeDevices/kubernetes.io~iscsi/pv")
	several := filepath.Join(m.root, pods)
	err := errors.Join(os.MkdirAll(filepath.Dir(device), 0o750), os.Symlink("/dev/null", device), os.MkdirAll(several, 0o700))
	pod := func(name, spec string) string {
		return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec: {" + spec + "containers: [{name: c, image: i}]}\n"
	}
	for name, text := range map[string]string{"two.yaml": pod("a", "") + "---\n# nothing\n---\n" + pod("b", ""),
		"one.yaml": "---\n" + pod("c", "") + "---\n", "refused.yaml": pod("d", "hostname: 1, "),
		"misspelt.yaml": pod("e", "hostNetwrk: true, "), ".hidden": "a: 1\n---\nb: 2\n"} {
		err = errors.Join(err, os.WriteFile(filepath.Join(several, name), []byte(text), 0o600))
	}
	if err := errors.Join(err, unix.Mkfifo(filepath.Join(several, "pipe.yaml"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time without being asked: the node is ours
		m.sent = nil
		if err := m.install(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(m.sent, "; "); got != "daemon-reload; restart kubelet.service" {
			t.Errorf("systemctl was called with %q", got)
		}
		m.replaceKubelet = false
	}
	out := m.output.String()
	if !strings.Contains(out, "not managed by playlet: "+device+" is a block device") {
		t.Errorf("the kubelet's block device is not named in\n%s", out)
	}
	before, _, _ := strings.Cut(out, "write /usr/local/bin/playlet\n")
	for _, want := range []string{"/two.yaml has 2 documents", "/refused.yaml:4: spec.hostname: ", "/misspelt.yaml:4: ",
		"/pipe.yaml: it cannot be read: it is a named pipe, not a regular file"} {
		if !strings.Contains(before, "manifest: "+pods+want) {
			t.Errorf("%s%s is not named before a change in\n%s", pods, want, out)
		}
	}
	if strings.Contains(out, "one.yaml") || strings.Contains(out, "hidden") {
		t.Errorf("a good or a hidden manifest is named in\n%s", out)
	}
	if got := m.content(t, systemd.TakeoverPath); !strings.Contains(got, "\nExecStart=/usr/local/bin/playlet --config=") ||
		!strings.Contains(got, " $KUBELET_KUBEADM_ARGS\n") || m.content(t, m.binary) != "the program" {
		t.Errorf("the drop-in is %s", got)
	}
	if m.content(t, "/etc/systemd/system/playlet.service")+m.content(t, m.config) != "" {
		t.Error("the standalone service is installed as well")
	}
	m.sent = nil
	limit := filepath.Join(m.root, systemd.LogindPath)
	if err := errors.Join(os.MkdirAll(filepath.Dir(limit), 0o755), os.WriteFile(limit, []byte("[Login]\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := m.uninstall(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(m.sent, "; "); got != "daemon-reload; try-restart kubelet.service; daemon-reload" ||
		m.content(t, systemd.TakeoverPath)+m.content(t, m.binary)+m.content(t, systemd.LogindPath) != "" {
		t.Errorf("the node was given back with %q", got)
	}
}

// A take-over that fails changes nothing for the kubelet.
func TestInstall_FailedTakeoverLeavesTheKubelet(t *testing.T) {
	m := newMachine(t)
	m.replaceKubelet = true
	if err := m.install(t.Context()); err == nil || !strings.Contains(err.Error(), "no kubelet is installed") {
		t.Errorf("without a kubelet: %v", err)
	}
	m.withKubelet(t)
	m.config = "/mine.yaml"
	if err := m.install(t.Context()); err == nil || !strings.Contains(err.Error(), "exclude each other") {
		t.Errorf("with --config: %v", err)
	}
	m.config, m.fails = systemd.ConfigPath, "restart"
	m.sent = nil
	err := m.install(t.Context())
	if err == nil || !strings.Contains(err.Error(), "the kubelet has the node again") {
		t.Errorf("without a start: %v", err)
	}
	if got := strings.Join(m.sent, "; "); got != "daemon-reload; restart kubelet.service; daemon-reload; restart kubelet.service" ||
		m.content(t, systemd.TakeoverPath) != "" {
		t.Errorf("after a failed start systemctl was called with %q", got)
	}
}

func TestAMachineWithoutSystemd(t *testing.T) {
	m := newMachine(t)
	if err := os.Remove(filepath.Join(m.root, systemdLives)); err != nil {
		t.Fatal(err)
	}
	if err := m.install(t.Context()); err == nil || !strings.Contains(err.Error(), "--no-start") || m.content(t, m.binary) != "" {
		t.Errorf("%v", err)
	}
	m.noStart = true
	if err := m.install(t.Context()); err != nil || m.content(t, m.binary) == "" {
		t.Errorf("%v", err)
	}
	if err := m.uninstall(t.Context()); err != nil || m.content(t, m.binary) != "" || len(m.sent) > 0 {
		t.Errorf("%v; told %q", err, m.sent)
	}
}

func TestADryRunChangesNothing(t *testing.T) {
	m := newMachine(t)
	m.dryRun = true
	if err := errors.Join(m.install(t.Context()), m.uninstall(t.Context())); err != nil {
		t.Fatal(err)
	}
	if m.content(t, m.binary) != "" || len(m.sent) > 0 || !strings.Contains(m.output.String(),
		"(dry run) write /usr/local/bin/playlet\n") {
		t.Errorf("told %q; %s", m.sent, m.output.String())
	}
}

// A user without permissions may still run a dry run, which reports that the machine was not examined.
func TestADryRunNeedsNotRoot(t *testing.T) {
	m := newMachine(t)
	m.dryRun, m.onlyRoot = true, true
	m.refuse = func(context.Context, []string) error { return errors.New("permission denied") }
	if err := m.install(t.Context()); err != nil || !strings.Contains(m.output.String(),
		"(dry run) not looked at: whether an agent can work with /etc/playlet/config.yaml on this machine; sudo playlet doctor does that\n") {
		t.Errorf("%v; %s", err, m.output.String())
	}
}

// An error names the failed operation and the log.
func TestAServiceThatDoesNotStart(t *testing.T) {
	m := newMachine(t)
	m.fails = "restart"
	err := m.install(t.Context())
	if err == nil ||
		!strings.Contains(err.Error(),
			"systemctl restart playlet.service: exit status 1: it failed (journalctl -u playlet.service says why)") {
		t.Errorf("%v", err)
	}
}

func TestInstallTakesAbsolutePaths(t *testing.T) {
	var out, errs bytes.Buffer
	if code := run([]string{"install", "--dry-run", "--config=here.yaml"}, &out, &errs); code != 1 ||
		!strings.Contains(errs.String(), "--config=here.yaml: must be an absolute path") {
		t.Errorf("%d, %s", code, errs.String())
	}
}

// run is playlet with these arguments.
func run(args []string, stdout, stderr io.Writer) int {
	root := &cobra.Command{Use: "playlet"}
	root.AddCommand(NewInstallCommand(), NewUninstallCommand())
	return cli.Main(root, args, stdout, stderr)
}

// A configuration that an agent could not work with is refused before anything is changed.
func TestInstallRefusesWhatCannotWork(t *testing.T) {
	m := newMachine(t)
	if err := os.MkdirAll(filepath.Join(m.root, "etc/playlet"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(m.root, m.config), []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := m.install(t.Context())
	if err == nil || err.Error() != "nothing was installed, for /etc/playlet/config.yaml would not do: it is nonsense" {
		t.Errorf("%v", err)
	}
	if m.content(t, m.binary) != "" || len(m.sent) > 0 {
		t.Errorf("something was installed; systemctl was told %v", m.sent)
	}
}

// A configuration that install did not write stays, also with --purge.
func TestUninstall_KeepsTheUsersConfiguration(t *testing.T) {
	m := newMachine(t)
	m.config = "/var/lib/kubelet/config.yaml"
	at := filepath.Join(m.root, m.config)
	if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte("mine"), 0o600)); err != nil {
		t.Fatal(err)
	}
	m.purge = true
	if err := errors.Join(m.install(t.Context()), m.uninstall(t.Context())); err != nil {
		t.Fatal(err)
	}
	if m.content(t, m.config) != "mine" || !strings.Contains(m.output.String(), m.config+" is left; install did not write it") {
		t.Errorf("the configuration is %q; %s", m.content(t, m.config), m.output.String())
	}
	if err := os.Remove(at); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(m.install(t.Context()), m.uninstall(t.Context())); err != nil || m.content(t, m.config) != "" {
		t.Errorf("one that install wrote there: %q, %v", m.content(t, m.config), err)
	}
}

// An upgrade of a node that was taken over, and that fails, leaves the former drop-in.
func TestInstall_FailedUpgradeOfATakeover(t *testing.T) {
	m := newMachine(t)
	m.withKubelet(t)
	m.replaceKubelet = true
	if err := m.install(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := m.content(t, systemd.TakeoverPath)
	m.fails = "daemon-reload"
	err := m.install(t.Context())
	if err == nil || !strings.Contains(err.Error(), "playlet keeps the node") || before == "" ||
		m.content(t, systemd.TakeoverPath) != before {
		t.Errorf("%v; the drop-in is %q, want %q", err, m.content(t, systemd.TakeoverPath), before)
	}
}
