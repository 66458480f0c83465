package streams

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/cmd/playlet/client/fake"
)

func TestExecArguments(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"", "which pod?"},
		{"web", "which command?"},
		{"web --", "which command?"},
		{"-- ls", "which pod?"},
		{"web ls -l", `a command comes after "--": playlet exec web -- ls`},
		{"-l web", "unknown flag: -l"},
		{"web ls", `a command comes after "--": playlet exec web -- ls`},
		{"web db -- ls", "one pod at a time"},
		{"web -- ls", "not running"},
	} {
		args := append([]string{"exec", "--admin-socket=" + t.TempDir() + "/none"}, strings.Fields(c.args)...)
		_, errs, code := fake.Run(args, newExecCommand)
		if code != 1 || !strings.Contains(errs, c.want) || strings.Count(errs, "\n") != 1 {
			t.Errorf("exec %s: code %d, %q, want %q", c.args, code, errs, c.want)
		}
	}
}

// Messages of runtimes about a command that could not be run, and the exit codes of shells for them.
func TestExitCode_OfUnrunCommand(t *testing.T) {
	const crun = "OCI runtime exec failed: executable file `ls` not found in $PATH: No such file or directory"
	if got := notRun(errors.New(crun)); got != 127 {
		t.Errorf("as an error: %d", got)
	}
	if got := notRun(errors.New("the container has ended")); got != 1 {
		t.Errorf("of something else: %d", got)
	}
	for _, c := range []struct {
		said       string
		code, want int
	}{{crun, 255, 127}, {crun, 1, 127}, {crun, 3, 3}, {"ls: /x: No such file or directory", 1, 1}, {"", 255, 255},
		{"time=\"now\" level=error msg=\"exec failed: unable to start container process: exec: \\\"ls\\\": executable file not found in $PATH\"", 255, 127},
		{"failed to load app.yaml: no such file or directory", 1, 1}, {"the file x was not found", 255, 255},
		{`exec: "git": executable file not found in $PATH`, 1, 1}, {"path /x: Permission denied", 1, 1}} {
		var shown bytes.Buffer
		h := &stderrCapture{Writer: &shown}
		fmt.Fprint(h, c.said[:len(c.said)/2])
		fmt.Fprint(h, c.said[len(c.said)/2:])
		if got := h.exitCode(c.code); got != c.want || shown.String() != c.said {
			t.Errorf("%q and code %d: %d, want %d; shown %q", c.said, c.code, got, c.want, &shown)
		}
	}
}
