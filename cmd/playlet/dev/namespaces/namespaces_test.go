package namespaces

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(text), 0o644))
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	return string(text)
}

func there(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func TestNothingIsRemovedAcrossAMount(t *testing.T) {
	for _, dir := range []string{"/proc", "/"} {
		if err := RefuseMounts(strings.TrimSuffix(dir, "/")); err == nil || !strings.Contains(err.Error(), "something is mounted on /") {
			t.Errorf("%s: %v", dir, err)
		}
	}
	must(t, RefuseMounts(t.TempDir()))
}

func TestThisProgramFindsItself(t *testing.T) {
	if self := Self(); !SameFile(self, "/proc/self/exe") {
		t.Errorf("it takes itself for %s", self)
	}
}

// Of two processes that end, the second is the one that is waited for.
func TestReapsUntilOneHasEnded(t *testing.T) {
	other, one := exec.Command("true"), exec.Command("sh", "-c", "exit 3")
	must(t, other.Start())
	must(t, one.Start())
	status, err := reap(one.Process.Pid)
	if err != nil || status.ExitStatus() != 3 {
		t.Errorf("it ended with %v, %v", status, err)
	}
	_ = other.Wait() // reap may have been first
}

func TestFoldersBelowAreListedFromTheTop(t *testing.T) {
	top := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(top, "a/b"), 0o755))
	write(t, filepath.Join(top, "a/file"), "")
	if got, err := Below(top); err != nil || strings.Join(got, " ") != top+"/a "+top+"/a/b" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := Below(top + "/none"); err != nil || len(got) > 0 {
		t.Errorf("%q, %v", got, err)
	}
}
