package daemon

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/playlet-dev/playlet/cmd/playlet/dev/process"
)

// Two processes, one after another, have one log, which can be read when its file has gone.
func TestADaemonComesAndGoes(t *testing.T) {
	d := &Daemon{Name: "it", Log: filepath.Join(t.TempDir(), "log")}
	if err := d.End(syscall.SIGKILL); err != nil || d.Running() || d.PID() != 0 {
		t.Errorf("before the first start: %v", err)
	}
	if err := d.AwaitReady(nil); err == nil {
		t.Error("what was not started is ready")
	}
	for _, word := range []string{"one", "two"} {
		if err := d.Start(exec.Command("sh", "-c", "echo "+word+"; exec sleep 1000")); err != nil {
			t.Fatal(err)
		}
		if err := d.Start(exec.Command("true")); err == nil || err.Error() != "it runs already" {
			t.Errorf("a second one beside: %v", err)
		}
		if err := d.AwaitReady(func(context.Context) error {
			if !strings.HasSuffix(d.Text(), word+"\n") {
				return errors.New("no word of it")
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
		if err := d.End(syscall.SIGTERM); err != nil || d.Running() || d.Process().ExitCode() != -1 {
			t.Errorf("its end: %v", err)
		}
	}
	d.Keep()
	if err := os.Remove(d.Log); err != nil || d.Text() != "one\ntwo\n" {
		t.Errorf("%v, %q", err, d.Text())
	}
}

func TestADaemonThatEndsDoesNotGetReady(t *testing.T) {
	d := &Daemon{Name: "it", Log: filepath.Join(t.TempDir(), "log")}
	if err := d.Start(exec.Command("sh", "-c", "echo why; exit 3")); err != nil {
		t.Fatal(err)
	}
	err := d.AwaitReady(func(context.Context) error { return errors.New("not ready") })
	if !errors.Is(err, process.ErrEnded) || !strings.HasSuffix(err.Error(), "\nwhy") {
		t.Errorf("%v", err)
	}
}
