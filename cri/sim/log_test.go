package sim_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/playlet-dev/playlet/cri/sim"
	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// logged starts pod web with its log below dir.
func (h *harness) logged(dir string) (id, path string) {
	h.t.Helper()
	config := pod("web")
	config.LogDirectory = filepath.Join(dir, "web")
	id, err := h.create(h.sandbox(config), config, containerOf(config, "main", 0))
	h.must(err)
	return id, filepath.Join(dir, "web", "main", "0.log")
}

func contents(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestLogs(t *testing.T) {
	opts := script(sim.Behaviour{Output: []string{"hello", "world"}})
	opts.WriteLogs = true
	h := start(t, opts)
	c, path := h.logged(t.TempDir())
	h.must(h.start(c))
	if got := h.status(c).LogPath; got != path {
		t.Errorf("log path %q, want %q", got, path)
	}
	const at = "2024-05-06T07:08:09Z "
	want := at + "stdout F hello\n" + at + "stdout F world\n"
	if got := contents(t, path); got != want {
		t.Errorf("log %q", got)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm()&0o027 != 0 {
		t.Errorf("log file %v %v", info, err)
	}

	h.must(os.Rename(path, path+".1"))
	h.must(h.Print("uid-web", "main", "stderr", "to the old file"))
	reopen := func() error {
		_, err := h.rt.ReopenContainerLog(h.ctx, &runtimeapi.ReopenContainerLogRequest{ContainerId: c})
		return err
	}
	h.must(reopen())
	h.must(h.Print("uid-web", "main", "stdout", "to the new"))
	if got := contents(t, path+".1"); got != want+at+"stderr F to the old file\n" {
		t.Errorf("rotated log %q", got)
	}
	if got := contents(t, path); got != at+"stdout F to the new\n" {
		t.Errorf("new log %q", got)
	}
	h.must(h.stop(c, 1))
	fails(t, reopen(), codes.Unknown, "container is not running")
	if h.Print("uid-web", "main", "stdout", "x") == nil {
		t.Error("a stopped container printed")
	}
}

func TestNoLogsUnlessAsked(t *testing.T) {
	h := start(t, sim.Options{})
	dir := t.TempDir()
	c, _ := h.logged(dir)
	h.must(h.start(c))
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("wrote %v %v", left, err)
	}
}

func TestStart_FailsWithUnwritableLog(t *testing.T) {
	h := start(t, sim.Options{WriteLogs: true})
	dir := t.TempDir()
	c, path := h.logged(dir)
	h.must(os.MkdirAll(filepath.Dir(path), 0o755))
	h.must(os.Symlink(filepath.Join(dir, "elsewhere"), path))
	fails(t, h.start(c), codes.Unknown, "failed to create and open log file")
	h.exited(c, 128, "StartError")
}
