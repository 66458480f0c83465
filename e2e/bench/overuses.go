package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/playlet-dev/playlet/e2e/stack"
)

// overuse is a way in which a pod uses more than it may; it is done when that has begun.
type overuse struct {
	name    string
	do      func(ctx context.Context, sub *subject, pod *corev1.Pod) error
	limited bool // the pod has a limit of local storage
}

const (
	tasksShort = "a fork bomb uses up process IDs"
	moreTasks  = 2000 // of the bomb; the threshold is half of them away
	toolDir    = "/tool"
)

// wanted reports whether this kind was requested; the default is all.
func wanted(name string) bool {
	return slices.ContainsFunc(strings.Split(*overuses, ","), func(word string) bool { return strings.Contains(name, word) })
}

func (b *clusterBench) kinds() []overuse {
	in := func(volume string, use func(dir string) error) func(context.Context, *subject, *corev1.Pod) error {
		return func(_ context.Context, sub *subject, pod *corev1.Pod) error {
			return use(filepath.Join(sub.root, "pods", string(pod.UID), "volumes/kubernetes.io~empty-dir", volume))
		}
	}
	fill := func(mebibytes int64) func(dir string) error {
		return func(dir string) error { return stack.Fill(filepath.Join(dir, "much"), mebibytes<<20) }
	}
	file := func(path string) func(context.Context, *subject, *corev1.Pod) error {
		return b.inside(func(root string) error { return stack.Fill(filepath.Join(root, path), 2<<20) })
	}
	binary, _ := os.Executable() // as in evictOne, which reports the error
	return []overuse{
		{"the disk is full", in("disk", fill(75)), false},
		{"inodes are used up", in("disk", func(dir string) error { return stack.UseInodes(dir, diskInodes-1000) }), false},
		{"an emptyDir is above its limit", in("limited", fill(2)), false},
		{"pods' memory is used up", b.run("/hello", "alloc", "300", "--", "sleep"), false},
		{"a writable layer fills images' disk",
			b.inside(func(root string) error { return b.fillImageDisk(filepath.Join(root, "much")) }), false},
		{"a log is above the pod's limit", b.inside(writeLog), true},
		{"a termination log is above the pod's limit", file("dev/termination-log"), true},
		{"/etc/hosts is above the pod's limit", file("etc/hosts"), true},
		{tasksShort, b.run(filepath.Join(toolDir, filepath.Base(binary)), bombCommand), false},
	}
}

// inside does something to the file system that the pod's container sees.
func (b *clusterBench) inside(use func(root string) error) func(context.Context, *subject, *corev1.Pod) error {
	return func(ctx context.Context, _ *subject, pod *corev1.Pod) error {
		list, err := b.stack.ContainersOf(ctx, string(pod.UID))
		if err != nil || len(list) != 1 {
			return fmt.Errorf("%d containers: %w", len(list), err)
		}
		pid, err := b.stack.ContainerPID(ctx, list[0].Id)
		if err != nil {
			return err
		}
		return use(fmt.Sprintf("/proc/%d/root", pid))
	}
}

// writeLog is the output of the container's process, as the runtime gets it.
func writeLog(root string) error {
	f, err := os.OpenFile(filepath.Join(root, "../fd/1"), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(strings.Repeat(strings.Repeat("x", 1000)+"\n", 2000))
	return errors.Join(err, f.Close())
}

// fillImageDisk leaves 80 MiB where images are.
func (b *clusterBench) fillImageDisk(path string) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(b.stack.DiskRoot(), &fs); err != nil {
		return err
	}
	return stack.Fill(path, int64(fs.Bavail)*fs.Frsize-80<<20)
}

// run has a command run in the pod's container until the pod ends.
func (b *clusterBench) run(command ...string) func(context.Context, *subject, *corev1.Pod) error {
	return func(ctx context.Context, sub *subject, pod *corev1.Pod) error {
		to, err := url.Parse(fmt.Sprintf("%s/exec/%s/%s/hello?%s", sub.api.Host, pod.Namespace, pod.Name,
			url.Values{"output": {"1"}, "command": command}.Encode()))
		if err != nil {
			return err
		}
		e, err := remotecommand.NewSPDYExecutor(sub.api, http.MethodPost, to)
		if err != nil {
			return err
		}
		go func() { _ = e.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: os.Stderr}) }() // it ends with the pod
		return nil
	}
}

// tasksLeft returns the number of tasks that this machine can still create, shared with all its users.
func tasksLeft() (int, error) {
	number := func(path, after string) (n int, err error) {
		text, err := os.ReadFile(path)
		if err == nil {
			_, err = fmt.Sscan(string(text[bytes.Index(text, []byte(after))+len(after):]), &n)
		}
		return n, err
	}
	ids, err := number("/proc/sys/kernel/pid_max", "")
	tasks, err2 := number("/proc/sys/kernel/threads-max", "")
	used, err3 := number("/proc/loadavg", "/") // the fourth field is "running/all"
	return min(ids, tasks) - used, errors.Join(err, err2, err3)
}

// bombCommand has this binary make processes and wait, in a pod.
const bombCommand = "bomb"

func bomb() int {
	for range moreTasks {
		if err := exec.Command("/hello", "sleep").Start(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	select {}
}
