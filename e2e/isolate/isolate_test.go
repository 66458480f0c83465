//go:build e2e

package isolate_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/e2e/isolate"
)

func TestMain(m *testing.M) {
	os.Exit(isolate.Run(func(string) error { return nil }, m.Run))
}

func TestInside(t *testing.T) {
	if !isolate.Inside() {
		t.Fatal("the body does not run inside")
	}
	t.Logf("dir %s", isolate.Dir())
	out, err := exec.Command("sh", "-c", "ps -e; ip -br addr; cat /proc/self/mountinfo | grep cgroup; cat /proc/self/cgroup; hostname; ls /run").CombinedOutput()
	t.Logf("%v\n%s", err, out)
	points, err := isolate.Cgroups()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range points {
		if _, err := os.Stat(filepath.Join(p, "cgroup.procs")); err != nil {
			t.Error(err)
		}
		below, err := isolate.Below(p)
		if err != nil {
			t.Error(err)
		}
		if len(below) > 1 {
			t.Errorf("%s: %s", p, strings.Join(below, " "))
		}
	}
}
