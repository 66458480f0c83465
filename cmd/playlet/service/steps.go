package service

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// path is where a file is, below the root.
func (i *installer) path(file string) string { return filepath.Join(i.root, file) }

func (i *installer) say(format string, args ...any) {
	if i.dryRun {
		format = "(dry run) " + format
	}
	fmt.Fprintf(i.out, format+"\n", args...)
}

// write puts a file in place in one step.
func (i *installer) write(file string, data []byte, mode fs.FileMode) error {
	i.say("write %s", file)
	if i.dryRun {
		if utf8.Valid(data) { // not the program
			fmt.Fprintf(i.out, "    %s\n", strings.ReplaceAll(strings.TrimSpace(string(data)), "\n", "\n    "))
		}
		return nil
	}
	path := i.path(file)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".playlet-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name()) //nolint:errcheck // it is gone when all went well
	_, err = tmp.Write(data)
	err = errors.Join(err, tmp.Chmod(mode), tmp.Sync(), tmp.Close())
	if err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}

func (i *installer) remove(file string) error {
	if _, err := os.Lstat(i.path(file)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	i.say("remove %s", file)
	if i.dryRun {
		return nil
	}
	return os.Remove(i.path(file))
}

func (i *installer) control(ctx context.Context, args ...string) error {
	i.say("systemctl %s", strings.Join(args, " "))
	if i.dryRun {
		return nil
	}
	if out, err := i.systemctl(ctx, args...); err != nil {
		return fmt.Errorf("systemctl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(out))
	}
	return nil
}

func systemctl(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "systemctl", args...).CombinedOutput()
	return string(out), err
}
