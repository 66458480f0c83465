package install

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func newJob(t *testing.T) *job {
	return &job{ctx: t.Context(), log: &bytes.Buffer{}, cache: t.TempDir()}
}

func TestPlaceIsAllOrNothingAndOnce(t *testing.T) {
	j := newJob(t)
	broken := errors.New("broken")
	fill := func(result error) func(string) error {
		return func(dir string) error {
			return errors.Join(os.WriteFile(filepath.Join(dir, "half"), nil, 0o644), result)
		}
	}
	if err := j.place("part-1", fill(broken)); !errors.Is(err, broken) {
		t.Errorf("the failure is not told: %v", err)
	}
	if entries, err := os.ReadDir(j.cache); err != nil || len(entries) != 0 {
		t.Errorf("a failed part leaves %v, %v", entries, err)
	}
	if err := j.place("part-1", fill(nil)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(j.cache, "part-1", "half")); err != nil {
		t.Error(err)
	}
	if err := j.place("part-1", fill(broken)); err != nil {
		t.Errorf("a part that is there is made again: %v", err)
	}
}

func TestLocateNamesWhatIsMissing(t *testing.T) {
	t.Setenv("PLAYLET_CACHE", t.TempDir())
	for _, kind := range []Kind{New, Old} {
		if _, err := Locate(kind); err == nil || !strings.Contains(err.Error(), "go run ./e2e/parts") {
			t.Errorf("%s: %v", kind, err)
		}
	}
	if _, err := Locate("docker"); err == nil || !strings.Contains(err.Error(), "docker") {
		t.Errorf("an unknown runtime: %v", err)
	}
}

func TestLocateWantsEveryPart(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("PLAYLET_CACHE", cache)
	files := []string{
		"containerd-v2.4.2/containerd", "containerd-v2.4.2/containerd-shim-runc-v2", "containerd-v2.4.2/ctr",
		"runc-v1.5.2/runc", "cni-plugins-v1.9.1/bridge", "cni-plugins-v1.9.1/host-local",
		"cni-plugins-v1.9.1/loopback", "cni-plugins-v1.9.1/portmap",
	}
	for i, file := range files {
		if _, err := Locate(New); err == nil {
			t.Errorf("complete without %v", files[i:])
		}
		path := filepath.Join(cache, "parts", file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Locate(New); err != nil {
		t.Error(err)
	}
}

// Built programs report the version in the code; the module pins the same versions.
func TestTheClustersModulePinsTheVersions(t *testing.T) {
	data, err := os.ReadFile("../cluster/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []part{kubernetes, controlPlane, etcd} {
		if want := "\n\t" + p.module + " " + p.version + " "; !strings.Contains(string(data), want) {
			t.Errorf("the module of the cluster does not require %s", want)
		}
	}
}

func TestLockIsExclusiveAndGivenUpInTime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	var log bytes.Buffer
	unlock, err := lock(t.Context(), path, &log)
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := lock(ended, path, &log); !errors.Is(err, context.Canceled) {
		t.Errorf("a second one gets the lock, or does not give up: %v", err)
	}
	if !strings.Contains(log.String(), "waiting") {
		t.Errorf("it does not say that it waits: %q", log.String())
	}
	unlock()
	unlock, err = lock(t.Context(), path, &log)
	if err != nil {
		t.Fatal(err)
	}
	unlock()
}

func TestAptNamesWhatItInstalls(t *testing.T) {
	j := newJob(t)
	t.Setenv("PATH", t.TempDir()) // no apt-get here
	there := tool{"there", func() bool { return true }}
	missing := tool{"missing-package", func() bool { return false }}
	if err := j.apt(there); err != nil {
		t.Errorf("a tool that is there: %v", err)
	}
	err := j.apt(there, missing)
	if err == nil || !strings.Contains(err.Error(), "missing-package") || strings.Contains(err.Error(), "there ") {
		t.Errorf("the error does not name the missing package alone: %v", err)
	}
}
