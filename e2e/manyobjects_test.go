//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/e2e/stack"
)

// A manifest of 2,000 ConfigMaps, or of 9,000 in task test-slow, is submitted whole or not at all, with its progress, and other
// commands are answered meanwhile.
func TestManyConfigMaps(t *testing.T) {
	count := 2000
	if os.Getenv("PLAYLET_SLOW") != "" {
		count = 9000
	}
	s := stack.Start(t, stack.Options{Runtime: stack.Containerd2})
	a := agentWith(t, s, func(a *stack.Agent) { a.Args = append(a.Args, "--object-dir="+filepath.Join(t.TempDir(), "objects")) })
	socket := "--admin-socket=" + a.AdminSocket
	settled(t, a)
	var many strings.Builder
	for i := range count {
		fmt.Fprintf(&many, "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings-%d}\ndata: {color: red, size: \"%[1]d\"}\n", i)
	}
	file := filepath.Join(t.TempDir(), "many.yaml")
	must(t, os.WriteFile(file, []byte(many.String()+"---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: Wrong_Name}\n"), 0o600))
	out, errs, code := playlet(t, "run", "-f", file, socket)
	if code != 1 || out != "" || !strings.Contains(errs, "metadata.name") || !strings.Contains(errs, "none of it is run") {
		t.Errorf("a wrong last document: %d %q\n%s", code, out, errs)
	}
	if out, errs, _ := playlet(t, "objects", socket); out != "" || errs != "no objects were submitted\n" {
		t.Errorf("after a refusal there are\n%s%s", out[:min(len(out), 500)], errs)
	}
	must(t, os.WriteFile(file, []byte(many.String()), 0o600))
	done := make(chan struct{})
	go func() {
		defer close(done)
		out, errs, code = playlet(t, "run", "-f", file, socket)
	}()
	for answered := 0; ; answered++ {
		select {
		case <-done:
		default:
			for _, command := range []string{"pods", "objects", "explain"} {
				args := []string{command, socket}
				if command == "explain" {
					args = append(args, "node")
				}
				if _, errs, code := playlet(t, args...); code != 0 {
					t.Errorf("%s while the manifest is submitted: %d %s", command, code, errs)
				}
			}
			continue
		}
		if answered == 0 {
			t.Error("no command was tried while the manifest was submitted")
		}
		break
	}
	if made := strings.Count(out, " created\n"); code != 0 || made != count {
		t.Errorf("%d were created, want %d: %d %s", made, count, code, errs)
	}
	for _, want := range []string{"many.yaml: checked 100%\n", "many.yaml: submitted 50%\n", "many.yaml: submitted 100%\n"} {
		if !strings.Contains(errs, want) {
			t.Errorf("%q is not among the progress:\n%s", want, errs[:min(len(errs), 2000)])
		}
	}
	out, errs, code = playlet(t, "objects", "--no-headers", socket)
	if got := strings.Count(out, "\n"); code != 0 || got != count || !strings.Contains(out, "color, size") || strings.Contains(out, "red") {
		t.Errorf("%d are listed, want %d: %d %s\n%s", got, count, code, errs, out[:min(len(out), 500)])
	}
}
