package client

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

func TestExecArguments(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"", "which pod?"},
		{"web", "which command?"},
		{"web --", "which command?"},
		{"-- ls", "which pod?"},
		{"web ls -l", "unknown shorthand flag"},
		{"web ls", `a command comes after "--": playlet exec web -- ls`},
		{"web db -- ls", "one pod at a time"},
		{"web -- ls", "not running"},
	} {
		var out, errs bytes.Buffer
		code := run(append([]string{"exec", "--admin-socket=" + t.TempDir() + "/none"}, strings.Fields(c.args)...), &out, &errs)
		if code != 1 || !strings.Contains(errs.String(), c.want) || strings.Count(errs.String(), "\n") != 1 {
			t.Errorf("exec %s: code %d, %q, want %q", c.args, code, errs.String(), c.want)
		}
	}
}

// What runtimes say of a command that could not be run, and the exit code that shells have for it.
func TestExitCodeOfACommandThatWasNotRun(t *testing.T) {
	const began = "failed to exec in container: OCI runtime exec failed: exec failed: unable to start container process: "
	for text, want := range map[string]int{
		began + `exec: "ls": executable file not found in $PATH: unknown`:   127,
		began + `exec: "/ls": stat /ls: no such file or directory: unknown`: 127,
		began + `exec: "/etc/hosts": permission denied: unknown`:            126,
		began + `exec: "/": is a directory: unknown`:                        126,
		"container is in CONTAINER_EXITED state":                            1,
		"connecting: no such file or directory":                             1,
	} {
		if got := notRun(errors.New(text)); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}
