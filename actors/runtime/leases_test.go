package runtime

import (
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/cni"
)

// aaa is a sandbox ID, too long to appear in the cgroup name of a process on this machine.
const aaa = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

// lostNetworkRig is the rig of an agent with sandboxes attached to a network.
type lostNetworkRig struct {
	*rig
	dir string
}

func lostRig(t *testing.T, f *fake, dir string) lostNetworkRig {
	t.Helper()
	l := lostNetworkRig{dir: dir}
	l.rig = settledRig(t, f, func(o *Options) {
		o.PollPeriod, o.AuditPeriod, o.CollectPeriod = time.Minute, time.Minute, 24*time.Hour
		o.SandboxesFile, o.CNICache = filepath.Join(dir, "sandboxes.json"), filepath.Join(dir, "cache")
		o.Network = cni.Places{ConfDir: filepath.Join(dir, "net.d"), BinDirs: []string{dir}}
	})
	return l
}

// attached writes libcni's record of an attachment, with a plugin that records its calls.
func (l lostNetworkRig) attached(netns string, ids ...string) {
	l.t.Helper()
	plugin := fmt.Sprintf("#!/bin/sh\necho $CNI_COMMAND $CNI_CONTAINERID >>%s/calls\n", l.dir)
	if err := os.WriteFile(filepath.Join(l.dir, "plugin"), []byte(plugin), 0o700); err != nil {
		l.t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(l.dir, "cache", "results"), 0o755); err != nil {
		l.t.Fatal(err)
	}
	for _, id := range ids {
		conf := []byte(`{"cniVersion":"0.4.0","name":"pods","plugins":[{"type":"plugin","ipam":{"type":"host-local"}}]}`)
		text := fmt.Sprintf(`{"kind":"cniCacheV1","containerId":%q,"config":%q,"ifName":"eth0","networkName":"pods",
			"netns":%q,"result":{"cniVersion":"0.4.0"}}`, id, base64.StdEncoding.EncodeToString(conf), netns)
		file := filepath.Join(l.dir, "cache", "results", "pods-"+id+"-eth0")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			l.t.Fatal(err)
		}
	}
}

// audits runs this many audits, a minute apart.
func (l lostNetworkRig) audits(n int) {
	for range n {
		l.Advance(time.Minute)
		l.work()
	}
}

// called returns the containers of the plugin's calls.
func (l lostNetworkRig) called() []string {
	text, err := os.ReadFile(filepath.Join(l.dir, "calls"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		l.t.Error(err)
	}
	return slices.DeleteFunc(strings.Fields(string(text)), func(w string) bool { return w == "DEL" })
}

// sandbox adds a pod's sandbox with this ID.
func (f *fake) sandbox(uid, id string) {
	f.pod(uid)
	f.sandboxes[len(f.sandboxes)-1].Id = id
}

// Only attachments that the runtime has lost are released, never attachments of existing or unseen sandboxes.
func TestLeasesOfSandboxesThatTheRuntimeHasLost(t *testing.T) {
	f := newFake()
	f.sandbox("a", aaa)
	f.sandbox("b", "bbb")
	l := lostRig(t, f, t.TempDir())
	l.audits(2)
	l.attached("", aaa, "bbb", "stranger")
	f.drop("a")
	l.audits(2)
	if got := l.called(); len(got) > 0 {
		t.Errorf("absent for a minute: %v", got)
	}
	l.audits(5)
	if got := l.called(); !slices.Equal(got, []string{aaa}) {
		t.Errorf("freed are those of %v", got)
	}
	text, err := os.ReadFile(filepath.Join(l.dir, "sandboxes.json"))
	if err != nil || !strings.Contains(string(text), "bbb") || strings.Contains(string(text), aaa) {
		t.Errorf("kept is %s, %v", text, err)
	}
}

// Addresses reserved by an interrupted ADD are released, whether or not its sandbox was seen. They stay if the runtime has the
// sandbox, or a record of it exists.
func TestLeasesThatNobodyRecorded(t *testing.T) {
	const seen, bbb, unseen, stranger, slow = aaa, "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb", "cccccccccccccccccccccccccccccccc", "ssssssssssssssss", "llllllllllllllll"
	f := newFake()
	f.sandbox("a", seen)
	f.sandbox("b", bbb)
	l := lostRig(t, f, t.TempDir())
	l.audits(2)
	l.attached("", stranger)
	write := func(path, text string) {
		t.Helper()
		path = filepath.Join(l.dir, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	write("net.d/10.conflist", fmt.Sprintf(`{"cniVersion":"0.4.0","name":"pods","plugins":[
		{"type":"plugin","ipam":{"type":"host-local","dataDir":%q}}]}`, filepath.Join(l.dir, "leases")))
	for i, id := range []string{seen, bbb, unseen, stranger} {
		write(fmt.Sprintf("leases/pods/10.0.0.%d", i+2), id+"\r\neth0")
	}
	write("leases/pods/last_reserved_ip.0", "10.0.0.5")
	f.drop("a")
	l.audits(2)
	if got := l.called(); len(got) > 0 {
		t.Errorf("absent for a minute: %v", got)
	}
	l.audits(6)
	if got := l.called(); !slices.Equal(slices.Compact(got), []string{seen}) {
		t.Errorf("freed are those of %v", got)
	}
	write("leases/pods/10.0.0.9", slow+"\r\neth0") // a slow ADD
	l.audits(10)
	l.attached("", slow)
	l.audits(40)
	if got := slices.Compact(slices.Sorted(slices.Values(l.called()))); !slices.Equal(got, []string{seen, unseen}) {
		t.Errorf("freed are those of %v", got)
	}
}

// A new agent loads the seen sandboxes; without that record it frees nothing.
func TestLeasesOfSandboxesThatWereSeenBefore(t *testing.T) {
	for name, want := range map[string][]string{"kept": {aaa}, "damaged": nil, "away": nil} {
		f, dir := newFake(), t.TempDir()
		f.sandbox("a", aaa)
		l := lostRig(t, f, dir)
		l.audits(2)
		l.attached("", aaa)
		file := filepath.Join(dir, "sandboxes.json")
		var err error
		switch name {
		case "damaged":
			err = os.WriteFile(file, []byte("{"), 0o600)
		case "away":
			err = os.Remove(file)
		}
		if err != nil {
			t.Fatal(err)
		}
		f.drop("a")
		f.sandbox("b", "bbb")
		l = lostRig(t, f, dir)
		l.audits(6)
		if got := l.called(); !slices.Equal(got, want) {
			t.Errorf("%s: freed are those of %v, want %v", name, got, want)
		}
	}
}

// Nothing is freed after an empty or failed list, or of a sandbox that returns, that the runtime knows, or that has processes.
func TestLeasesThatStay(t *testing.T) {
	const here = "/proc/self/ns/net"
	for name, c := range map[string]struct {
		netns string
		then  func(f *fake, l lostNetworkRig)
	}{
		"an empty list": {"", func(f *fake, l lostNetworkRig) {
			f.drop("a")
			f.drop("b")
			l.audits(9)
		}},
		"lists that fail": {"", func(f *fake, l lostNetworkRig) {
			f.drop("a")
			f.fail("sandboxes", errors.New("no"))
			l.audits(9)
		}},
		"lists without it that are too far apart from each other": {"", func(f *fake, l lostNetworkRig) {
			for range 5 {
				f.drop("a")
				l.audits(2)
				f.sandbox("a", aaa)
				l.audits(1)
			}
		}},
		"one that is known by its ID": {"", func(f *fake, l lostNetworkRig) {
			f.hides = aaa
			l.audits(9)
		}},
		"a runtime that does not answer for it": {"", func(f *fake, l lostNetworkRig) {
			f.drop("a")
			f.fail("sandbox", errors.New("no"))
			l.audits(9)
		}},
		"one in whose namespace processes run": {here, func(f *fake, l lostNetworkRig) {
			f.drop("a")
			l.audits(9)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			f.sandbox("a", aaa)
			f.sandbox("b", "bbb")
			l := lostRig(t, f, t.TempDir())
			l.audits(2)
			l.attached(c.netns, aaa)
			c.then(f, l)
			if got := l.called(); len(got) > 0 {
				t.Errorf("freed are those of %v", got)
			}
			if text, err := os.ReadFile(filepath.Join(l.dir, "sandboxes.json")); !strings.Contains(string(text), aaa) {
				t.Errorf("it is not kept any more: %s, %v", text, err)
			}
		})
	}
}

// Records of attachments that a power cut has damaged are removed, of sandboxes that have ended alone: the others may be written
// just now.
func TestRecordsThatAPowerCutDamaged(t *testing.T) {
	const bbb, ccc = "bbbbbbbbbbbbbbbb", "cccccccccccccccc"
	f := newFake()
	for _, id := range []string{aaa, bbb, ccc} {
		f.sandbox(id[:1], id)
		if id != ccc {
			f.sandboxes[len(f.sandboxes)-1].State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
		}
	}
	dir := t.TempDir()
	lostNetworkRig{rig: &rig{t: t}, dir: dir}.attached("", bbb)
	results := filepath.Join(dir, "cache", "results")
	for _, name := range []string{"pods-" + aaa + "-eth0", "pods-" + ccc + "-eth0", "pods-stranger-eth0"} {
		if err := os.WriteFile(filepath.Join(results, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	lostRig(t, f, dir).audits(1)
	var left []string
	entries, err := os.ReadDir(results)
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if want := []string{"pods-" + bbb + "-eth0", "pods-" + ccc + "-eth0", "pods-stranger-eth0"}; err != nil || !slices.Equal(left, want) {
		t.Errorf("left are %v (%v), want %v", left, err, want)
	}
}
