package stack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/playlet-dev/playlet/e2e/isolate"
	"github.com/playlet-dev/playlet/e2e/parts/install"
)

// binaryName is the agent's binary within the directory of a run.
const binaryName = "playlet"

// Main runs a program of tests or benchmarks in namespaces of its own, after it got the parts that are missing and built
// the agent (with the race detector when PLAYLET_RACE=1; $PLAYLET_BINARY names one to take instead). It gives the exit
// code:
//
//	func TestMain(m *testing.M) { os.Exit(stack.Main(m.Run)) }
func Main(body func() int) int {
	return isolate.Run(prepare, body)
}

func prepare(dir string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := install.Ensure(ctx, os.Stderr, Runtimes...); err != nil {
		return err
	}
	if err := install.EnsureCluster(ctx, os.Stderr); err != nil {
		return err
	}
	if err := install.EnsureEarlier(ctx, os.Stderr); err != nil {
		return err
	}
	if err := errors.Join(install.EnsureCrun(ctx, os.Stderr), install.EnsureMachine(ctx, os.Stderr)); err != nil {
		return err
	}
	return buildAgent(ctx, filepath.Join(dir, binaryName))
}

// buildAgent builds cmd/playlet of the main module of the working directory.
func buildAgent(ctx context.Context, out string) error {
	if built := os.Getenv("PLAYLET_BINARY"); built != "" {
		path, err := filepath.Abs(built)
		if err != nil {
			return err
		}
		return os.Symlink(path, out)
	}
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return fmt.Errorf("the module of the working directory: %w", err)
	}
	args := []string{"build", "-o", out}
	if os.Getenv("PLAYLET_RACE") == "1" {
		args = append(args, "-race")
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "./cmd/playlet")...)
	cmd.Dir = strings.TrimSpace(string(root))
	if files, err := filepath.Glob(filepath.Join(cmd.Dir, "cmd/playlet/*.go")); err != nil || len(files) == 0 {
		fmt.Fprintln(os.Stderr, "stack: no agent to build in", filepath.Join(cmd.Dir, "cmd/playlet"))
		return err
	}
	if msg, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building the agent: %w\n%s", err, bytes.TrimSpace(msg))
	}
	return nil
}
