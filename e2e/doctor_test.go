//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
	"github.com/playlet-dev/playlet/e2e/stack"
)

// finding is one of `playlet doctor -o json`.
type finding struct{ Check, Result, Seen, Do string }

// doctor runs `playlet doctor` with the agent's own flags, and returns its findings and its exit code.
func doctor(t *testing.T, a *stack.Agent, args ...string) ([]finding, int) {
	t.Helper()
	out, errs, code := playlet(t, append(append([]string{"doctor", "-o", "json"}, a.CommandLine()...), args...)...)
	var report struct {
		Fit      bool
		Findings []finding
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil || report.Fit != (code == 0) || (errs == "") != (code == 0) {
		t.Fatalf("exit code %d, %v\n%s\n%s", code, err, out, errs)
	}
	for _, f := range report.Findings {
		if f.Seen == "" || (f.Do == "") != (f.Result == "ok" || f.Result == "skip") {
			t.Errorf("a finding says too little, or too much: %+v", f)
		}
	}
	return report.Findings, code
}

// found looks for a finding.
func found(t *testing.T, all []finding, check, result, says string) {
	t.Helper()
	if !slices.ContainsFunc(all, func(f finding) bool {
		return f.Check == check && f.Result == result && strings.Contains(f.Seen+f.Do, says)
	}) {
		t.Errorf("no finding %s %s with %q among\n%+v", result, check, says, all)
	}
}

// prepared returns an agent with a written configuration that does not run.
func prepared(t *testing.T, s *stack.Stack) *stack.Agent {
	t.Helper()
	a, err := s.NewAgent()
	must(t, err)
	must(t, a.WriteConfig())
	return a
}

// hostState is the state that the doctor must not change: network namespaces, interfaces, mounts, addresses. It excludes the
// bridge: the plugin creates it with the first pod and leaves it for the next.
func hostState(t *testing.T, s *stack.Stack) []string {
	t.Helper()
	links, err := net.Interfaces()
	must(t, err)
	var all []string
	for _, link := range links {
		if link.Name != s.Bridge() {
			all = append(all, "interface "+link.Name)
		}
	}
	mounts, err := mountinfo.GetMounts(nil)
	must(t, err)
	for _, m := range mounts {
		all = append(all, "mount "+m.Mountpoint)
	}
	for _, dir := range []string{"/run/netns", "/run/playlet/doctor", s.LeaseDir(), "/var/lib/cni"} {
		must(t, ignoreMissing(filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
			if err == nil && !info.IsDir() && info.Name() != "lock" && !strings.HasPrefix(info.Name(), "last_reserved_ip") {
				all = append(all, "file "+path)
			}
			return ignoreMissing(err)
		})))
	}
	slices.Sort(all)
	return all
}

func ignoreMissing(err error) error {
	if os.IsNotExist(err) {
		return nil
	}
	return err
}

// A suitable machine is reported as such, before the agent runs and while it does, and is not changed.
func TestDoctorOnAMachineThatIsFit(t *testing.T) {
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		a := prepared(t, s)
		before := hostState(t, s)
		all, code := doctor(t, a)
		if code != 0 {
			t.Errorf("exit code %d: %+v", code, all)
		}
		found(t, all, "agent", "ok", "none runs")
		found(t, all, "runtime", "ok", "containerd ")
		found(t, all, "conditions", "ok", "NetworkReady")
		found(t, all, "network", "ok", "bridge (host-local), portmap")
		subnet := strings.TrimSuffix(s.Subnet(), "0/20")
		found(t, all, "attach", "ok", "a pod gets eth0 "+subnet)
		found(t, all, "attach", "ok", "default route by "+subnet)
		found(t, all, "ports", "ok", "free: ")
		found(t, all, "mounts", "ok", "shared")
		if s.HasEvents() {
			found(t, all, "features", "ok", "events, ")
			found(t, all, "network", "ok", "STATUS: ready")
			found(t, all, "cgroup-driver", "ok", "reported by the runtime")
		} else {
			found(t, all, "features", "warn", "not: events")
			found(t, all, "network", "ok", "no STATUS")
			found(t, all, "cgroup-driver", "ok", "from the configuration")
		}
		if after := hostState(t, s); !slices.Equal(after, before) {
			t.Errorf("it left the machine otherwise:\n%q\n%q", before, after)
		}

		must(t, a.Start())
		settled(t, a)
		all, code = doctor(t, a)
		if code != 0 {
			t.Errorf("with an agent: exit code %d: %+v", code, all)
		}
		found(t, all, "agent", "ok", fmt.Sprintf("runs here, process %d", a.PID()))
		found(t, all, "ports", "ok", "used by the running agent: ")
		out, errs, code := playlet(t, append([]string{"doctor"}, a.CommandLine()...)...)
		if code != 0 || errs != "" || !strings.Contains(out, "ok    runtime") || !strings.Contains(out, " 0 failed, ") ||
			strings.Contains(out, "\x1b") {
			t.Errorf("for people: %d %q\n%s", code, errs, out)
		}
	})
}

// Each failure of a network is reported with its cause, in the plugins' own words, and nothing remains.
func TestDoctorOnABadNetwork(t *testing.T) {
	s := stack.Start(t, stack.Options{})
	a := prepared(t, s)
	before := hostState(t, s)
	bin := t.TempDir()
	script := func(name, status, add string) {
		must(t, os.WriteFile(filepath.Join(bin, name), []byte(`#!/bin/sh
cat >/dev/null
case $CNI_COMMAND in
VERSION) echo '{"cniVersion": "1.1.0", "supportedVersions": ["1.0.0", "1.1.0"]}' ;;
STATUS) `+status+` ;;
ADD) `+add+` ;;
esac
`), 0o755))
	}
	script("not-now", `echo '{"cniVersion": "1.1.0", "code": 50, "msg": "the daemon of not-now does not run"}'; exit 1`, "")
	script("no-more", "", `echo '{"cniVersion": "1.1.0", "code": 11, "msg": "no address is left"}'; exit 1`)
	script("liar", "", `echo '{"cniVersion": "1.1.0", "ips": [{"address": "192.0.2.9/24"}]}'`)
	single := func(kind string) string {
		return fmt.Sprintf("{\n\"cniVersion\": \"1.1.0\",\n\"name\": \"pods\",\n\"type\": %q\n}", kind)
	}
	for _, c := range []struct{ name, file, text, check, says string }{
		{"no configuration", "", "", "network", "no network configuration in "},
		{"no JSON", "10-a.conflist", "{\n\"name\": ,\n}", "network", "10-a.conflist is not valid: line 2: "},
		{"a plugin is missing", "10-a.conf", single("nowhere"), "network", "the network plugin nowhere of "},
		{"STATUS says no", "10-a.conf", single("not-now"), "network", "the daemon of not-now does not run"},
		{"ADD fails", "10-a.conf", single("no-more"), "attach", "failed (add): no address is left"},
		{"ADD does nothing", "10-a.conf", single("liar"), "attach", "there is no interface eth0"},
	} {
		dir := t.TempDir()
		if c.file != "" {
			must(t, os.WriteFile(filepath.Join(dir, c.file), []byte(c.text), 0o600))
		}
		all, code := doctor(t, a, "network", "attach", "--cni-conf-dir="+dir, "--cni-bin-dir="+bin)
		if code != 1 {
			t.Errorf("%s: exit code %d", c.name, code)
		}
		found(t, all, c.check, "fail", c.says)
		if c.check == "network" {
			found(t, all, "attach", "skip", "not ready")
		}
	}
	// The runtime's own word, once its folder is emptied.
	must(t, os.RemoveAll(filepath.Join(s.CNIConfDir(), "10-playlet.conflist")))
	await(t, func() error {
		all, _ := doctor(t, a, "conditions")
		if !slices.ContainsFunc(all, func(f finding) bool {
			return f.Result == "fail" &&
				strings.Contains(f.Seen, "NetworkReady is false")
		}) {
			return fmt.Errorf("%+v", all)
		}
		return nil
	})
	all, _ := doctor(t, a, "network")
	found(t, all, "network", "fail", "no network configuration in "+s.CNIConfDir()+" (the folders that the runtime reports)")
	if after := hostState(t, s); !slices.Equal(after, before) {
		t.Errorf("it left the machine otherwise:\n%q\n%q", before, after)
	}
}

// The next doctor removes the leftovers of one that was killed in the middle of an ADD: namespace, interface, address.
func TestDoctorCleansUpAfterOneThatWasKilled(t *testing.T) {
	s := stack.Start(t, stack.Options{})
	a := prepared(t, s)
	before := hostState(t, s)
	bin, conf, begun := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "begun")
	must(t, os.WriteFile(filepath.Join(bin, "waits"), []byte(`#!/bin/sh
cat >/dev/null
case $CNI_COMMAND in
VERSION) echo '{"cniVersion": "1.1.0", "supportedVersions": ["1.1.0"]}' ;;
ADD) touch `+begun+`; exec sleep 1000 ;;
esac
`), 0o755))
	bins := "--cni-bin-dir=" + bin + "," + s.CNIBinDir()
	text, err := os.ReadFile(filepath.Join(s.CNIConfDir(), "10-playlet.conflist"))
	must(t, err)
	var network map[string]any
	must(t, json.Unmarshal(text, &network))
	network["plugins"].([]any)[1] = map[string]any{"type": "waits"} // instead of portmap
	text, err = json.Marshal(network)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(conf, "a.conflist"), text, 0o600))

	// Ctrl-C undoes at once.
	asked := exec.Command(program(), append([]string{"doctor", "attach", "--cni-conf-dir=" + conf, bins}, a.CommandLine()...)...)
	must(t, asked.Start())
	awaitFile(t, begun, "")
	must(t, asked.Process.Signal(os.Interrupt))
	if err := asked.Wait(); asked.ProcessState.ExitCode() != 1 {
		t.Errorf("after Ctrl-C: %v", err)
	}
	if after := hostState(t, s); !slices.Equal(after, before) {
		t.Errorf("after Ctrl-C:\n%q\n%q", before, after)
	}
	must(t, os.Remove(begun))

	killed := exec.Command(program(), append([]string{"doctor", "attach", "--cni-conf-dir=" + conf, bins}, a.CommandLine()...)...)
	must(t, killed.Start())
	awaitFile(t, begun, "")
	must(t, killed.Process.Kill())
	_ = killed.Wait() // it was killed
	left := hostState(t, s)
	if slices.Equal(left, before) || !slices.ContainsFunc(left,
		func(l string) bool { return strings.HasPrefix(l, "file "+s.LeaseDir()) }) {
		t.Fatalf("it has left nothing: %q", left)
	}
	all, code := doctor(t, a, "attach")
	if code != 0 {
		t.Errorf("%d %+v", code, all)
	}
	found(t, all, "attach", "ok", "removed what an earlier trial had left that was killed")
	found(t, all, "attach", "ok", "a pod gets eth0 ")
	if after := hostState(t, s); !slices.Equal(after, before) {
		t.Errorf("it left the machine otherwise:\n%q\n%q", before, after)
	}
	// The plugin that it had started ends with the test.
	killAll(t, "sleep", "1000")
}

// killAll ends processes with this command line.
func killAll(t *testing.T, args ...string) {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	must(t, err)
	for _, dir := range dirs {
		text, err := os.ReadFile(dir + "/cmdline")
		if err != nil || string(text) != strings.Join(args, "\x00")+"\x00" {
			continue
		}
		var pid int
		_, err = fmt.Sscanf(filepath.Base(dir), "%d", &pid)
		must(t, err)
		p, err := os.FindProcess(pid)
		must(t, err)
		must(t, p.Kill())
	}
}

// A runtime that is away, or hangs, and a port that is taken, are findings.
func TestDoctorOnWhatIsAwayAndTaken(t *testing.T) {
	s := stack.Start(t, stack.Options{})
	a := prepared(t, s)
	taken, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", a.Config["healthzPort"]))
	must(t, err)
	defer taken.Close() //nolint:errcheck // at the end
	all, code := doctor(t, a, "ports")
	if code != 1 {
		t.Errorf("exit code %d", code)
	}
	found(t, all, "ports", "fail", fmt.Sprintf("(process %d)", os.Getpid()))

	must(t, s.FreezeRuntime())
	all, code = doctor(t, a)
	must(t, s.ThawRuntime())
	if code != 1 {
		t.Errorf("exit code %d", code)
	}
	found(t, all, "runtime", "fail", "it accepts connections and does not answer")
	found(t, all, "conditions", "skip", "does not answer")

	must(t, s.TermRuntime())
	all, _ = doctor(t, a)
	found(t, all, "runtime", "fail", "start the runtime")
	found(t, all, "cgroup-driver", "skip", "does not answer")
	found(t, all, "disk", "ok", "free for pods")
	must(t, s.StartRuntime())
}
