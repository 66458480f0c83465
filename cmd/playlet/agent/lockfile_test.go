package agent

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/cmd/playlet/agent/locks"
	"github.com/playlet-dev/playlet/cri/sim"
)

func (l *logBuffer) await(t *testing.T, words string) {
	t.Helper()
	for deadline := time.Now().Add(waitLimit); !strings.Contains(l.String(), words); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the log never says %q:\n%s", words, l.String())
		}
	}
}

// The second agent waits for the lock file, logs that, and continues when the first has ended.
func TestLockFile_ExcludesASecondAgent(t *testing.T) {
	path, log := filepath.Join(t.TempDir(), "lock"), &logBuffer{}
	logger := slog.New(slog.NewTextHandler(log, nil))
	first, err := locks.Hold(t.Context(), path, false, logger)
	if err != nil {
		t.Fatal(err)
	}
	if first.Contention() != nil {
		t.Error("it gives way, and nobody asked for that")
	}
	ctx, cancel := context.WithCancel(t.Context())
	refused, held := make(chan error), make(chan *locks.File)
	go func() {
		_, err := locks.Hold(ctx, path, false, logger)
		refused <- err
		second, err := locks.Hold(t.Context(), path, false, logger)
		if err != nil {
			t.Error(err)
		}
		held <- second
	}()
	log.await(t, "another process holds the lock file")
	cancel()
	if err := <-refused; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), path) {
		t.Errorf("asked to stop while it waits: %v", err)
	}
	if err := first.Release(); err != nil {
		t.Error(err)
	}
	if err := (<-held).Release(); err != nil {
		t.Error(err)
	}
	if _, err := locks.Hold(t.Context(), filepath.Join(path, "no", "folder"), false, logger); err == nil ||
		!strings.Contains(err.Error(), "--lock-file") {
		t.Errorf("a file that cannot be made: %v", err)
	}
}

// TestLockFile_OpenedEndsTheAgent: with --exit-on-lock-contention it ends, with nothing to complain of, and
// the next one gets the lock.
func TestLockFile_OpenedEndsTheAgent(t *testing.T) {
	r := newRig(t, sim.Options{})
	path := filepath.Join(r.dir, "lock")
	r.flags = append(r.flags, "--lock-file="+path, "--exit-on-lock-contention", "--cgroups-per-qos=false",
		"--enforce-node-allocatable=none")
	logger := slog.New(slog.NewTextHandler(r.log, nil))
	ended := make(chan error, 1)
	node := r.node()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { ended <- Run(ctx, node, logger) }()
	r.log.await(t, "playlet is running")
	next, err := locks.Hold(t.Context(), path, true, logger)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(waitLimit):
		t.Fatal("it goes on")
	}
	select {
	case <-next.Contention():
		t.Error("the next one takes its own opening for another's")
	default:
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	<-next.Contention()
	if err := errors.Join(f.Close(), next.Release()); err != nil {
		t.Error(err)
	}
}
