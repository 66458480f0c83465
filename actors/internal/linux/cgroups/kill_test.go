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

// A process whose number a cgroup had a moment ago, and has no more, is another's.
func TestAProcessThatIsNotInTheCgroupIsNotKilled(t *testing.T) {
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
	// What has been killed runs no more.
	if _, err := io.WriteString(in, "alive\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "alive\n" {
		t.Fatalf("it was killed: %q, %v", line, err)
	}
	if err := killEach([]int{pid}, func() ([]int, error) { return nil, syscall.EIO }); !errors.Is(err, syscall.EIO) {
		t.Errorf("what cannot be listed: %v", err)
	}
	// The kernel tells of a process of another process namespace as 0, which kill(2) takes for all of one's own group.
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
