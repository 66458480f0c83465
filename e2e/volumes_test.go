//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/playlet-dev/playlet/e2e/stack"
)

// awaitWaiting waits until the agent reports that a pod waits for that reason, in a message with all these words.
func awaitWaiting(t *testing.T, a *stack.Agent, name, code string, words ...string) {
	t.Helper()
	await(t, func() error {
		now, err := a.Snapshot(t.Context())
		if err != nil {
			return err
		}
		pod := now.Pod(onNode(name))
		if pod == nil || pod.Waiting == nil || pod.Waiting.Code != code {
			return fmt.Errorf("pod %s does not wait for %s: %+v", name, code, pod)
		}
		for _, w := range words {
			if !strings.Contains(pod.Waiting.Message, w) {
				return fmt.Errorf("the reason of pod %s does not speak of %q: %s", name, w, pod.Waiting.Message)
			}
		}
		return nil
	})
}

// absent reports whether a path does not exist.
func absent(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// An emptyDir is one folder for all containers of its pod, any user's to write; it outlives its containers, and nothing of
// it outlives the pod or comes back with a successor.
func TestEmptyDirLivesAsLongAsItsPod(t *testing.T) {
	const spec = `
terminationGracePeriodSeconds: 5
initContainers:
- {name: init, image: HELLO, args: [write, /in/greeting, "from init"], volumeMounts: [{name: data, mountPath: /in}]}
containers:
- name: writer
  image: HELLO
  args: [append, /data/log, VERSION, --, sleep]
  securityContext: {runAsUser: 65534, runAsGroup: 65534}
  volumeMounts: [{name: data, mountPath: /data}]
- name: reader
  image: HELLO
  args: [wait-file, /x/log, --, cat, /x/greeting, --, write, /x/read, "yes", --, sleep]
  volumeMounts: [{name: data, mountPath: /x}]
volumes: [{name: data, emptyDir: {}}]`
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		a := agentWith(t, s, quick)
		folder := func(uid string) string { return filepath.Join(a.RootDir, "pods", uid) }
		volume := func(uid, file string) string {
			return filepath.Join(folder(uid), "volumes/kubernetes.io~empty-dir/data", file)
		}
		must(t, a.Write("p.yaml", manifest(s, "p", strings.ReplaceAll(spec, "VERSION", "one"))))
		reader := up(t, s, "p", "reader")
		old := reader.Labels[stack.UIDLabel]
		awaitFile(t, volume(old, "read"), "yes\n")
		awaitLogs(t, s, reader.Id, "from init\n")
		killed(t, s, "p", "writer")
		awaitFile(t, volume(old, "log"), "one\none\n")

		must(t, a.Write("p.yaml", manifest(s, "p", strings.ReplaceAll(spec, "VERSION", "two"))))
		var now string
		await(t, func() error {
			if now = up(t, s, "p", "reader").Labels[stack.UIDLabel]; now == old {
				return fmt.Errorf("the pod is still %s", now)
			}
			return nil
		})
		awaitFile(t, volume(now, "log"), "two\n")
		if !absent(folder(old)) {
			t.Error("the folder of the pod before is still there")
		}
		must(t, a.Remove("p.yaml"))
		cleared(t, s, a)
		if !absent(folder(now)) {
			t.Error("the folder of the pod is still there")
		}
	})
}

// awaitLogs waits until a container's log is this.
func awaitLogs(t *testing.T, s *stack.Stack, id, want string) {
	t.Helper()
	await(t, func() error {
		got, err := s.Logs(t.Context(), id)
		if err == nil && got != want {
			err = fmt.Errorf("the log is %q, want %q", got, want)
		}
		return err
	})
}

// hostPathPod is a pod with that path of the host.
func hostPathPod(s *stack.Stack, name, path, kind string) string {
	return manifest(s, name, fmt.Sprintf(`
terminationGracePeriodSeconds: 5
containers:
- {name: c, image: HELLO, args: [sleep], volumeMounts: [{name: data, mountPath: /v}]}
volumes: [{name: data, hostPath: {path: %q, type: %q}}]`, path, kind))
}

// Each type of hostPath that exists, or is created on request, lets its pod run; the host's own files are kept.
func TestHostPathTypesThatAreMet(t *testing.T) {
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		dir := t.TempDir()
		at := func(name string) string { return filepath.Join(dir, name) }
		must(t, os.Mkdir(at("folder"), 0o755))
		must(t, os.WriteFile(at("file"), []byte("host"), 0o644))
		socket, err := net.Listen("unix", at("socket"))
		must(t, err)
		defer socket.Close()                                             //nolint:errcheck // it is only there
		must(t, syscall.Mknod(at("block"), syscall.S_IFBLK|0o600, 7<<8)) // loop0, which is never opened
		must(t, os.Symlink(at("folder"), at("link")))

		var args, mounts, volumes []string
		for i, c := range []struct{ path, kind string }{
			{at("file"), ""},
			{at("folder"), "Directory"},
			{at("link"), "Directory"},
			{at("a/b/c"), "DirectoryOrCreate"},
			{at("folder"), "DirectoryOrCreate"},
			{at("file"), "File"},
			{at("new"), "FileOrCreate"},
			{at("file"), "FileOrCreate"},
			{at("socket"), "Socket"},
			{"/dev/null", "CharDevice"},
			{at("block"), "BlockDevice"},
		} {
			args = append(args, fmt.Sprintf("check-file, /v%d, --", i))
			mounts = append(mounts, fmt.Sprintf("{name: v%d, mountPath: /v%d}", i, i))
			volumes = append(volumes, fmt.Sprintf("{name: v%d, hostPath: {path: %q, type: %q}}", i, c.path, c.kind))
		}
		a := s.Agent(t)
		must(t, a.Write("p.yaml", manifest(s, "p", fmt.Sprintf(
			"terminationGracePeriodSeconds: 5\ncontainers: [{name: c, image: HELLO, args: [%s, sleep], volumeMounts: [%s]}]\nvolumes: [%s]",
			strings.Join(args, ", "), strings.Join(mounts, ", "), strings.Join(volumes, ", ")))))
		up(t, s, "p", "c")
		must(t, a.Remove("p.yaml"))
		cleared(t, s, a)
		for _, name := range []string{"folder", "file", "socket", "block", "link", "a/b/c", "new"} {
			if absent(at(name)) {
				t.Errorf("%s, which is the host's, went with its pod", name)
			}
		}
		if text, err := os.ReadFile(at("file")); err != nil || string(text) != "host" {
			t.Errorf("the host's file holds %q, %v", text, err)
		}
	})
}

// If the path has another type, the pod waits, and the reason names the volume, the path, the requested and the actual type. The
// check is repeated by itself.
func TestHostPathTypesThatAreNotMet(t *testing.T) {
	s := stack.Start(t, stack.Options{})
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	must(t, os.Mkdir(at("folder"), 0o755))
	must(t, os.WriteFile(at("file"), nil, 0o644))
	a := s.Agent(t)
	cases := []struct{ name, path, kind, found string }{
		{"no-folder", at("later"), "Directory", "nothing is there"},
		{"file-for-folder", at("file"), "Directory", "a file"},
		{"file-for-new-folder", at("file"), "DirectoryOrCreate", "a file"},
		{"no-file", at("none"), "File", "nothing is there"},
		{"folder-for-file", at("folder"), "File", "a directory"},
		{"folder-for-new-file", at("folder"), "FileOrCreate", "a directory"},
		{"new-file-nowhere", at("none/file"), "FileOrCreate", "cannot be made"},
		{"file-for-socket", at("file"), "Socket", "a file"},
		{"file-for-char", at("file"), "CharDevice", "a file"},
		{"char-for-block", "/dev/null", "BlockDevice", "a character device"},
	}
	for _, c := range cases {
		must(t, a.Write(c.name+".yaml", hostPathPod(s, c.name, c.path, c.kind)))
	}
	for _, c := range cases {
		awaitWaiting(t, a, c.name, "FailedMount", `"data"`, c.path, c.kind, c.found)
		if all := containersOf(t, s, c.name); len(all) > 0 {
			t.Errorf("%s: there are containers: %v", c.name, all)
		}
	}
	awaitLogged(t, a, "volumes operation failed", at("later"), "Directory", "nothing is there")
	must(t, os.Mkdir(at("later"), 0o755))
	up(t, s, "no-folder", "c")
	for _, c := range cases {
		must(t, a.Remove(c.name+".yaml"))
	}
	cleared(t, s, a)
}

// A mount that is read-only cannot be written through; the same volume can through another mount.
func TestReadOnlyMounts(t *testing.T) {
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		dir := t.TempDir()
		a := s.Agent(t)
		must(t, a.Write("p.yaml", manifest(s, "p", fmt.Sprintf(`
restartPolicy: Never
containers:
- {name: host-ro, image: HELLO, args: [write, /v/ro, x], volumeMounts: [{name: host, mountPath: /v, readOnly: true}]}
- {name: host-rw, image: HELLO, args: [write, /v/rw, x], volumeMounts: [{name: host, mountPath: /v}]}
- {name: empty-ro, image: HELLO, args: [write, /v/ro, x], volumeMounts: [{name: empty, mountPath: /v, readOnly: true}]}
- {name: empty-rw, image: HELLO, args: [write, /v/rw, x], volumeMounts: [{name: empty, mountPath: /v}]}
volumes: [{name: host, hostPath: {path: %s}}, {name: empty, emptyDir: {}}]`, dir))))
		for _, kind := range []string{"host", "empty"} {
			if c := down(t, s, "p", kind+"-ro"); c.ExitCode != 1 ||
				!strings.Contains(output(t, s, "p", kind+"-ro"), "cannot write /v/ro") {
				t.Errorf("writing through a read-only mount of %s ended with %d", kind, c.ExitCode)
			}
			if c := down(t, s, "p", kind+"-rw"); c.ExitCode != 0 {
				t.Errorf("writing to %s ended with %d", kind, c.ExitCode)
			}
		}
		if !absent(filepath.Join(dir, "ro")) || absent(filepath.Join(dir, "rw")) {
			t.Error("the host's folder holds what it must not, or not what it must")
		}
	})
}

// Mounts made below a hostPath while a container runs propagate into it on request; the kernel's mount options show all three
// modes.
func TestMountPropagation(t *testing.T) {
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		dir := t.TempDir()
		a := s.Agent(t)
		must(t, a.Write("p.yaml", manifest(s, "p", fmt.Sprintf(`
terminationGracePeriodSeconds: 5
containers:
- {name: none, image: HELLO, args: [cat, /proc/self/mountinfo, --, sleep], volumeMounts: [{name: v, mountPath: /v}]}
- name: slave
  image: HELLO
  args: [cat, /proc/self/mountinfo, --, wait-file, /v/sub/seen, --, write, /v/seen, "yes", --, sleep]
  volumeMounts: [{name: v, mountPath: /v, mountPropagation: HostToContainer}]
- name: shared
  image: HELLO
  args: [cat, /proc/self/mountinfo, --, sleep]
  securityContext: {privileged: true}
  volumeMounts: [{name: v, mountPath: /v, mountPropagation: Bidirectional}]
volumes: [{name: v, hostPath: {path: %s}}]`, dir))))
		for name, want := range map[string]string{"none": "", "slave": "master:", "shared": "shared:"} {
			c := up(t, s, "p", name)
			await(t, func() error {
				text, err := s.Logs(t.Context(), c.Id)
				if err == nil {
					err = propagates(text, want)
				}
				return err
			})
		}
		sub := filepath.Join(dir, "sub")
		must(t, os.Mkdir(sub, 0o755))
		unmount := tmpfs(t, sub)
		must(t, os.WriteFile(filepath.Join(sub, "seen"), nil, 0o644))
		awaitFile(t, filepath.Join(dir, "seen"), "yes\n")
		must(t, a.Remove("p.yaml"))
		nothing(t, s)
		unmount()
	})
}

// tmpfs mounts one at a folder until the test ends or calls the returned function, which fails if it is in use.
func tmpfs(t *testing.T, dir string) (unmount func()) {
	t.Helper()
	must(t, syscall.Mount("tmpfs", dir, "tmpfs", 0, ""))
	there := true
	t.Cleanup(func() {
		if there {
			_ = syscall.Unmount(dir, syscall.MNT_DETACH) // the test has failed already
		}
	})
	return func() {
		t.Helper()
		must(t, syscall.Unmount(dir, 0))
		there = false
	}
}

// propagates looks up the mount /v in a mountinfo (proc_pid_mountinfo(5)): its optional fields are the propagation.
func propagates(mountinfo, want string) error {
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		if len(fields) < 7 || fields[4] != "/v" {
			continue
		}
		optional, _, _ := strings.Cut(strings.Join(fields[6:], " ")+" ", "- ")
		if want == "" && strings.TrimSpace(optional) == "" || want != "" && strings.HasPrefix(optional, want) {
			return nil
		}
		return fmt.Errorf("the mount is %q, want %q", line, want)
	}
	return fmt.Errorf("no mount at /v in %q", mountinfo)
}
