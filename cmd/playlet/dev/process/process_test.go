package process

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A process that does not end on its signal is killed, and the error reports that.
func TestAProcessIsEnded(t *testing.T) {
	p, err := Start(exec.Command("sleep", "1000"))
	if err != nil || !p.Running() {
		t.Fatal(err)
	}
	if err := p.End(syscall.SIGCONT, time.Millisecond); err == nil || !strings.Contains(err.Error(), "does not end on") {
		t.Errorf("%v", err)
	}
	if p.Running() || p.ExitCode() != -1 || p.Err() == nil {
		t.Errorf("it runs: %v, %d, %v", p.Running(), p.ExitCode(), p.Err())
	}
	if err := p.End(syscall.SIGTERM, time.Minute); err != nil {
		t.Errorf("of one that has ended: %v", err)
	}
	if none := (*Process)(nil); none.Running() {
		t.Error("no process runs")
	}
}

func TestUnreadyProcess_ReportsReason(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Await(ctx, nil, func(context.Context) error { return errors.New("not ready") }); err == nil ||
		err.Error() != "it does not get ready: not ready" {
		t.Errorf("%v", err)
	}
}
