package cgroups

import (
	"bufio"
	"errors"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// A process ID that is no longer listed in the cgroup belongs to another process, which must not be killed.
func TestKill_SparesProcessesOutsideTheCgroup(t *testing.T) {
	cat := exec.CommandContext(t.Context(), "cat")
	in, inErr := cat.StdinPipe()
	out, outErr := cat.StdoutPipe()
	if err := errors.Join(inErr, outErr, cat.Start()); err != nil {
		t.Fatal(err)
	}
	pid := cat.Process.Pid
	if err := killEach([]int{pid}, func() ([]int, error) { return nil, nil }); err != nil {
		t.Fatal(err)
	}
	// A killed process would not answer.
	if _, err := io.WriteString(in, "alive\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "alive\n" {
		t.Fatalf("it was killed: %q, %v", line, err)
	}
	if err := killEach([]int{pid}, func() ([]int, error) { return nil, syscall.EIO }); !errors.Is(err, syscall.EIO) {
		t.Errorf("what cannot be listed: %v", err)
	}
	// The kernel reports processes of other PID namespaces as 0. kill(2) with 0 signals the caller's own process group.
	if err := killEach([]int{0}, func() ([]int, error) { return []int{0}, nil }); err == nil ||
		!strings.Contains(err.Error(), "another PID namespace") {
		t.Errorf("a process of another namespace: %v", err)
	}
	if err := killEach([]int{pid}, func() ([]int, error) { return []int{pid}, nil }); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cat.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("it ended otherwise: %v", err)
	}
	if err := killEach([]int{pid}, func() ([]int, error) { return []int{pid}, nil }); err != nil {
		t.Errorf("one that has ended: %v", err)
	}
}
