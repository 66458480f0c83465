//go:build e2e

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/playlet-dev/playlet/e2e/isolate"
	"github.com/playlet-dev/playlet/e2e/stack"
)

// notTyped are the commands of docs/ that TestDocs_CommandsWork leaves to other tests, by the beginning, with the reason.
var notTyped = map[string]string{
	"playlet dev":           "the test's node is one",
	"playlet --":            "starts an agent; TestReadmesCommands does",
	"playlet install":       "changes the machine; the tests of the package do it in a virtual machine",
	"playlet uninstall":     "changes the machine, as install",
	"playlet pods -w":       "is endless; TestReadmesCommands interrupts it",
	"playlet doctor --conf": "needs a kubelet's file; TestDoctorOnAMachineThatIsFit has one",
	"playlet doctor conf":   "needs a package's file",
}

const docsPod = `apiVersion: v1
kind: Pod
metadata: {name: web}
spec: {terminationGracePeriodSeconds: 1, containers: [{name: web, image: "playlet.local/hello:1", args: [serve, "8081"]}]}
`

// Each command of the pages in docs/ works on the node of playlet dev, where the pages' pods hello and web run.
func TestDocs_CommandsWork(t *testing.T) {
	d := startDev(t, stack.Runtimes[0])
	d.printed(`End it: +Ctrl-C`)
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "web.yaml"), []byte(docsPod), 0o600))
	run := func(line string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "sh", "-c", line)
		cmd.Dir = dir
		cmd.Env = []string{"PATH=" + isolate.Dir() + ":/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + dir}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", line, err, out)
		}
	}
	pages, err := filepath.Glob("../docs/*.md")
	must(t, err)
	typed := 0
	unused := notTypedCommands()
	for _, page := range pages {
		text, err := os.ReadFile(page)
		must(t, err)
		for _, m := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[1], "kind: ChaosExperiment") {
				must(t, os.WriteFile(filepath.Join(dir, "mine.yaml"), []byte(m[1]), 0o600))
			}
		}
		for _, m := range regexp.MustCompile(`(?m)^\$ (?:sudo )?(playlet .*)$`).FindAllStringSubmatch(string(text), -1) {
			if i := slices.IndexFunc(notTypedCommands(), func(begin string) bool { return strings.HasPrefix(m[1], begin) }); i >= 0 {
				unused = slices.DeleteFunc(unused, func(begin string) bool { return begin == notTypedCommands()[i] })
				continue
			}
			if strings.Contains(m[1], "web") {
				run("playlet run -f web.yaml --wait")
			}
			run(m[1])
			typed++
		}
	}
	d.ends(syscall.SIGINT, 0)
	if typed < 20 || len(unused) > 0 {
		t.Errorf("%d commands were typed; not in docs are %q", typed, unused)
	}
}

func notTypedCommands() []string {
	out := make([]string, 0, len(notTyped))
	for begin := range notTyped {
		out = append(out, begin)
	}
	slices.Sort(out)
	return out
}
