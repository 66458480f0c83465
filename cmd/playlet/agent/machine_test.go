package agent

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/playlet-dev/playlet/actors/registration"
	"github.com/playlet-dev/playlet/config"
)

// host returns a "/proc" of a machine with swap and a setting that Kubernetes changes.
func host(t *testing.T) string {
	t.Helper()
	proc := t.TempDir()
	for name, text := range map[string]string{
		"swaps": "Filename\tType\tSize\n/dev/sda2 partition 1024\n", "sys/vm/overcommit_memory": "0\n",
		"sys/kernel/panic": "10\n", "self/oom_score_adj": "0\n",
	} {
		path := filepath.Join(proc, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return proc
}

func configured(t *testing.T, args ...string) *config.Node {
	t.Helper()
	fs := pflag.NewFlagSet("playlet", pflag.ContinueOnError)
	flags := config.AddFlags(fs)
	if err := fs.Parse(append([]string{"--fail-cgroupv1=false"}, args...)); err != nil {
		t.Fatal(err)
	}
	node, _, err := config.Load(flags, fs)
	if err != nil {
		t.Fatal(err)
	}
	return node
}

func TestAMachineThatTheConfigurationDoesNotAllow(t *testing.T) {
	proc := host(t)
	for args, want := range map[string]string{
		"":                     "failSwapOn (--fail-swap-on): invalid value true: this host swaps (/dev/sda2)",
		"--fail-swap-on=false": "",
		"--fail-swap-on=false --protect-kernel-defaults": "vm.overcommit_memory is 0 and not 1",
	} {
		err := checkMachine(configured(t, strings.Fields(args)...), false, proc, "/sys")
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
}

func TestMoreReservedThanThereIs(t *testing.T) {
	machine := registration.Machine{CPUs: 2, Memory: 4 << 30}
	for args, want := range map[string]string{
		"--system-reserved=memory=2Gi --kube-reserved=memory=1Gi,cpu=2": "",
		"--system-reserved=memory=2Gi --kube-reserved=memory=2Gi":       "keep 4196Mi of memory from pods, and this host has 4Gi",
		"--kube-reserved=cpu=2100m":                                     "keep 2100m of cpu from pods",
	} {
		err := checkReserved(configured(t, strings.Fields(args)...), machine)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}

// A setting that the host rejects is logged once and does not stop the agent.
func TestAMachineIsPrepared(t *testing.T) {
	proc := host(t)
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	files := fmt.Sprintf("--max-open-files=%d", limit.Max)
	prepareMachine(configured(t, files), proc, log)
	for file, want := range map[string]string{
		"sys/vm/overcommit_memory": "1", "sys/kernel/panic": "10\n", "self/oom_score_adj": "-999",
	} {
		if text, err := os.ReadFile(filepath.Join(proc, file)); err != nil || string(text) != want {
			t.Errorf("%s: %q, %v, want %q", file, text, err, want)
		}
	}
	if said := out.String(); strings.Contains(said, "WARN") || strings.Count(said, "changed a kernel setting") != 1 {
		t.Error(said)
	}
	out.Reset()
	prepareMachine(configured(t, files), proc, log)
	if out.Len() > 0 {
		t.Errorf("the second time: %s", out.String())
	}
	for _, file := range []string{"sys/vm/overcommit_memory", "self/oom_score_adj"} {
		path := filepath.Join(proc, file)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	prepareMachine(configured(t, files), proc, log)
	if said := out.String(); strings.Count(said, "WARN") != 2 || !strings.Contains(said, "oomScoreAdj cannot be set") {
		t.Error(said)
	}
}

// maxOpenFiles is the limit of the process and of its children. A limit that the process may not set changes nothing.
func TestMaxOpenFiles(t *testing.T) {
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	of := func() string {
		out, err := exec.CommandContext(t.Context(), "sh", "-c", "ulimit -Sn; ulimit -Hn").Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(strings.Fields(string(out)), " ")
	}
	less := int64(was.Max) - 1 // it stays for the other tests
	if err := setOpenFiles(less); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("%d %d", less, less)
	if got := of(); got != want {
		t.Errorf("got the limits %s, want %s", got, want)
	}
	if err := setOpenFiles(1 << 40); err == nil || !strings.Contains(err.Error(), "1099511627776 is above the hard limit of the process") {
		t.Errorf("a limit above that of the kernel: %v", err)
	}
	if got := of(); got != want {
		t.Errorf("got the limits %s after a failure, want %s", got, want)
	}
}

func TestReservationsOfTheConfiguration(t *testing.T) {
	node := configured(t, "--enforce-node-allocatable=pods,system-reserved,kube-reserved-compressible", "--system-reserved=memory=1Gi",
		"--system-reserved-cgroup=/s", "--kube-reserved=cpu=1", "--kube-reserved-cgroup=/k", "--qos-reserved=memory=30%")
	got := reservations(node.Kubelet)
	if len(got) != 2 || got[0].Setting != "systemReserved" || got[0].Group != "/s" || got[0].Compressible ||
		got[1].Setting != "kubeReserved" || got[1].Group != "/k" || !got[1].Compressible {
		t.Errorf("%+v", got)
	}
	if qosReserved(node) != nil {
		t.Error("qosReserved is in force without its feature gate")
	}
	node = configured(t, "--qos-reserved=memory=30%", "--feature-gates=QOSReserved=true")
	if got := qosReserved(node); got == nil || *got != 30 {
		t.Errorf("%v", got)
	}
}

// Whether cgroups bound swap is read from where the kernel shows it.
func TestSwapController(t *testing.T) {
	proc, groups := host(t), t.TempDir()
	put := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if swapController(proc, groups, false) || swapController(proc, groups, true) {
		t.Error("it is there without a file")
	}
	put(filepath.Join(groups, "memory/memory.memsw.limit_in_bytes"), "")
	put(filepath.Join(proc, "self/cgroup"), "0::/system.slice/playlet.service\n")
	if !swapController(proc, groups, false) || swapController(proc, groups, true) {
		t.Error("version 1")
	}
	put(filepath.Join(groups, "system.slice/playlet.service/memory.swap.max"), "")
	if !swapController(proc, groups, true) {
		t.Error("version 2")
	}
}
