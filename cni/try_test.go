package cni

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
)

// trial makes one for a test that takes root.
func trial(t *testing.T, p Places) NetworkCheck {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a network namespace takes root")
	}
	return NetworkCheck{Places: p, StateDir: filepath.Join(t.TempDir(), "state"), NetNSDir: filepath.Join(t.TempDir(), "netns")}
}

func calls(t *testing.T, log string) []string {
	t.Helper()
	text, err := os.ReadFile(log)
	must(t, err)
	var out []string
	for line := range strings.Lines(string(text)) {
		if name, _, _ := strings.Cut(line, " "); name != "VERSION" {
			out = append(out, name)
		}
	}
	return out
}

// clean fails the test if a trial has left something.
func clean(t *testing.T, tr NetworkCheck) {
	t.Helper()
	for _, dir := range []string{tr.StateDir, tr.NetNSDir} {
		must(t, filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
			if errors.Is(err, os.ErrNotExist) {
				return nil
			}
			if err == nil && !e.IsDir() {
				t.Errorf("%s is left", path)
			}
			return err
		}))
	}
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(tr.NetNSDir))
	if err != nil || len(mounts) > 0 {
		t.Errorf("mounts: %v %v", mounts, err)
	}
}

func load(t *testing.T, p Places) []Network {
	t.Helper()
	networks, err := Load(p)
	must(t, err)
	return networks
}

// DEL is called after each failure and leaves nothing; a result that differs from the namespace is an error.
func TestATrialIsUndone(t *testing.T) {
	for _, test := range []struct {
		name, orders string
		step         Step
		says         string
		calls        []string
		kept         bool
	}{
		{"ADD fails", `"fail": {"ADD": 7}`, Add, "told to fail", []string{"ADD", "DEL"}, false},
		{"ADD answers nothing of use", `"garbage": {"ADD": true}`, Add, "what?", []string{"ADD", "DEL"}, false},
		{"ADD makes no interface", `"x": 1`, Look, "no interface eth0", []string{"ADD", "CHECK", "DEL"}, false},
		{"CHECK fails", `"fail": {"CHECK": 100}`, Check, "told to fail", []string{"ADD", "CHECK", "DEL"}, false},
		{"DEL fails", `"fail": {"DEL": 100}`, Del, "told to fail", []string{"ADD", "CHECK", "DEL"}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := places(t, "one")
			tr, log := trial(t, p), filepath.Join(t.TempDir(), "log")
			p.write(t, "a.conf", `{"type": "one", "name": "a", "cniVersion": "1.1.0", "log": "`+log+`", `+test.orders+`}`)
			_, err := tr.Run(t.Context(), load(t, p))
			if !failed(err, test.step) || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%v", err)
			}
			if got := calls(t, log); !slices.Equal(got, test.calls) {
				t.Errorf("calls: %v", got)
			}
			if !test.kept {
				clean(t, tr)
				return
			}
			// The next trial repeats a failed cleanup.
			notes, err := tr.Sweep(t.Context(), load(t, p))
			if err != nil || len(notes) != 1 || !strings.Contains(notes[0], "could not be undone") {
				t.Errorf("%q %v", notes, err)
			}
			p.write(t, "a.conf", `{"type": "one", "name": "a", "cniVersion": "1.1.0"}`)
			notes, err = tr.Sweep(t.Context(), load(t, p))
			if err != nil || len(notes) != 1 || !strings.Contains(notes[0], "removed") {
				t.Errorf("%q %v", notes, err)
			}
			clean(t, tr)
		})
	}
}

// failed finds a step among joined errors.
func failed(err error, step Step) bool {
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		return slices.ContainsFunc(many.Unwrap(), func(err error) bool { return failed(err, step) })
	}
	e, ok := errors.AsType[*StepError](err)
	return ok && e.Step == step
}

// Ctrl-C in the middle of ADD ends the plugin, and undoes.
func TestATrialThatIsEndedIsUndone(t *testing.T) {
	p := places(t, "one")
	tr, log, begun := trial(t, p), filepath.Join(t.TempDir(), "log"), filepath.Join(t.TempDir(), "begun")
	p.write(t, "a.conf", `{"type": "one", "name": "a", "cniVersion": "1.1.0", "log": "`+log+`", "hang": {"ADD": "`+begun+`"}}`)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { cancelWhenThere(begun, cancel) }()
	if _, err := tr.Run(ctx, load(t, p)); !errors.Is(err, context.Canceled) || !failed(err, Add) {
		t.Errorf("%v", err)
	}
	if got := calls(t, log); !slices.Equal(got, []string{"ADD", "DEL"}) {
		t.Errorf("calls: %v", got)
	}
	clean(t, tr)
}

// A namespace's file may remain without its mount: the trial was killed before the mount, or the mounts are gone.
func TestAFileWithoutItsNamespaceIsUndone(t *testing.T) {
	p := places(t, "one")
	tr, log := trial(t, p), filepath.Join(t.TempDir(), "log")
	p.write(t, "a.conf", `{"type": "one", "name": "a", "cniVersion": "1.1.0", "log": "`+log+`"}`)
	a := tr.attempt(prefix + strconv.Itoa(os.Getpid()))
	must(t, os.MkdirAll(filepath.Dir(a.netns), 0o755))
	must(t, os.WriteFile(a.netns, nil, 0o600))
	notes, err := tr.Sweep(t.Context(), load(t, p))
	if err != nil || len(notes) != 1 || !strings.Contains(notes[0], "removed") || !slices.Equal(calls(t, log), []string{"DEL"}) {
		t.Errorf("%q %v, calls: %v", notes, err, calls(t, log))
	}
	clean(t, tr)
}

// The next trial cleans up after a killed one, and does not touch one in progress.
func TestWhatAKilledTrialHasLeftIsUndone(t *testing.T) {
	p := places(t, "one")
	tr, log := trial(t, p), filepath.Join(t.TempDir(), "log")
	p.write(t, "a.conf", `{"type": "one", "name": "a", "cniVersion": "1.1.0", "log": "`+log+`"}`)
	networks := load(t, p)
	process := exec.Command("sleep", "1000")
	must(t, process.Start())
	a := tr.attempt(prefix + strconv.Itoa(process.Process.Pid))
	must(t, makeNetNS(a.netns))
	must(t, a.add(t.Context(), &networks[0]))

	notes, err := tr.Sweep(t.Context(), networks)
	if err != nil || len(notes) > 0 || !slices.Equal(calls(t, log), []string{"ADD"}) {
		t.Fatalf("one under way: %q %v %v", notes, err, calls(t, log))
	}
	must(t, process.Process.Kill())
	_ = process.Wait() // it was killed
	notes, err = tr.Sweep(t.Context(), networks)
	if err != nil || len(notes) != 1 || !strings.Contains(notes[0], "removed") {
		t.Errorf("%q %v", notes, err)
	}
	text, err := os.ReadFile(log)
	must(t, err)
	if !strings.Contains(string(text), "DEL "+a.id+"\n") {
		t.Errorf("calls: %s", text)
	}
	clean(t, tr)
}

// After a restart of the machine there is no namespace, and the address is reserved on disk still.
func TestLeasesOfTheDeadAreFreed(t *testing.T) {
	p := places(t, "one")
	tr, log, data := trial(t, p), filepath.Join(t.TempDir(), "log"), t.TempDir()
	p.write(t, "a.conf", `{"type": "one", "name": "a", "cniVersion": "1.1.0", "log": "`+log+`", "ipam": {"type": "host-local", "dataDir": "`+data+`"}}`)
	must(t, os.MkdirAll(filepath.Join(data, "a"), 0o700))
	for name, text := range map[string]string{"10.0.0.2": prefix + "dead\r\neth0", "10.0.0.3": "some-pod\r\neth0", "lock": "",
		"last_reserved_ip.0": "10.0.0.3"} {
		must(t, os.WriteFile(filepath.Join(data, "a", name), []byte(text), 0o600))
	}
	notes, err := tr.Sweep(t.Context(), load(t, p))
	if err != nil || len(notes) != 1 || !strings.Contains(notes[0], "freed") {
		t.Errorf("%q %v", notes, err)
	}
	if text, err := os.ReadFile(log); err != nil || string(text) != "DEL "+prefix+"dead\n" {
		t.Errorf("calls: %s %v", text, err)
	}
}

func TestReadRoutes(t *testing.T) {
	dir := t.TempDir()
	v4, v6 := filepath.Join(dir, "4"), filepath.Join(dir, "6")
	must(t, os.WriteFile(v4, []byte("Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\n"+
		"eth0\t00000000\t0100640A\t0003\t0\t0\t0\t00000000\t0\t0\t0\neth0\t0000640A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n"), 0o600))
	must(t, os.WriteFile(v6,
		[]byte("00000000000000000000000000000000 00 00000000000000000000000000000000 00 fd000000000000000000000000000001 00000400 00000001 00000000 00000003     eth0\n"+
			"00000000000000000000000000000000 00 00000000000000000000000000000000 00 00000000000000000000000000000000 ffffffff 00000001 00000000 00200200       lo\n"), 0o600))
	routes, err := readRoutes(v4, v6)
	must(t, err)
	var got []string
	for _, r := range routes {
		got = append(got, r.Destination.String()+" "+r.Gateway.String()+" "+r.Interface)
	}
	want := []string{"0.0.0.0/0 10.100.0.1 eth0", "10.100.0.0/16 invalid IP eth0", "::/0 fd00::1 eth0"}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
