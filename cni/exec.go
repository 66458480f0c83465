package cni

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
)

// runner runs plugins. At its deadline it kills a plugin's whole process group, unlike libcni's runner, and does not wait for
// orphans: a plugin that is a shell script hangs in a child.
type runner struct{ version.PluginDecoder }

var _ invoke.Exec = &runner{}

// dying is how long a plugin's pipes are read after its end.
const dying = time.Second

// ExecPlugin implements invoke.Exec. The error is a *types.Error where the plugin gave one (CNI, "Error").
func (*runner) ExecPlugin(ctx context.Context, path string, stdin []byte, env []string) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, path)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = env, bytes.NewReader(stdin), &stdout, &stderr
	// A group of its own: Ctrl-C is for us, and we have to clean up.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = dying
	err := cmd.Run()
	switch {
	case err == nil:
		return stdout.Bytes(), nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%s was ended: %w", path, context.Cause(ctx))
	}
	answer := &types.Error{}
	if _, ended := errors.AsType[*exec.ExitError](err); ended && json.Unmarshal(stdout.Bytes(), answer) == nil &&
		(answer.Msg != "" || answer.Code != 0) {
		return nil, answer
	}
	return nil, fmt.Errorf("%s: %w%s", path, err, outputTail(stdout.String(), stderr.String()))
}

// FindInPath implements invoke.Exec.
func (*runner) FindInPath(plugin string, dirs []string) (string, error) {
	return invoke.FindInPath(plugin, dirs)
}

// outputTail returns the end of the first non-empty output, for an error message.
func outputTail(outputs ...string) string {
	const most = 300
	for _, text := range outputs {
		if text = strings.TrimSpace(text); text != "" {
			return ": " + text[max(0, len(text)-most):]
		}
	}
	return ""
}
