package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// earlier is the commit of the previous agent in upgrade tests. Its labels, annotations and checkpoints stay readable.
const earlier = "fa21fd141289c96828980934fa9650a586eb1219"

// ErrNoHistory is returned by LocateEarlier for a checkout without the commit of the earlier agent.
var ErrNoHistory = errors.New("the history of this checkout lacks commit " + earlier + " (a shallow clone, or no git)")

// EnsureEarlier builds the earlier agent from the history of the checkout that the working directory is in, as Ensure gets
// runtimes: with the network, since its modules are not all of today's. A checkout without the commit is no error.
func EnsureEarlier(ctx context.Context, log io.Writer) error {
	return locked(ctx, log, func(j *job) error {
		if !hasEarlier(ctx) {
			return nil
		}
		return j.place("agent-"+earlier, func(dir string) error {
			return j.step("building the agent of commit "+earlier[:7], func() error { return j.buildEarlier(dir) })
		})
	})
}

// LocateEarlier gives the path of the earlier agent's binary, or ErrNoHistory.
func LocateEarlier() (string, error) {
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	binary := filepath.Join(cache, "agent-"+earlier, "playlet")
	if _, err := os.Stat(binary); errors.Is(err, os.ErrNotExist) {
		return "", ErrNoHistory
	} else if err != nil {
		return "", err
	}
	return binary, nil
}

func git(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "git", append([]string{"-c", "safe.directory=*"}, args...)...)
}

func hasEarlier(ctx context.Context) bool {
	return git(ctx, "cat-file", "-e", earlier+"^{commit}").Run() == nil
}

func (j *job) buildEarlier(dir string) error {
	top, err := git(j.ctx, "rev-parse", "--show-toplevel").Output()
	if err != nil {
		return fmt.Errorf("the checkout of the working directory: %w", err)
	}
	sources, err := os.MkdirTemp(j.cache, "unfinished-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(sources) //nolint:errcheck // it lies in the cache, and is not looked at again
	archive := filepath.Join(sources, "sources.tar")
	if err := run(git(j.ctx, "-C", strings.TrimSpace(string(top)), "archive", "-o", archive, earlier)); err != nil {
		return err
	}
	if err := run(exec.CommandContext(j.ctx, "tar", "-x", "-C", sources, "-f", archive)); err != nil {
		return err
	}
	build := j.goCommand(part{}, "build", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(dir, "playlet"), "./cmd/playlet")
	build.Dir = sources
	return run(build)
}
