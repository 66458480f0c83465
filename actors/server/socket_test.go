package server

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/server/admin/api"
)

func TestTheSocketIsForItsOwnerAlone(t *testing.T) {
	old := syscall.Umask(0) // nothing may depend on it
	defer syscall.Umask(old)
	r := openRig(t)
	for path, want := range map[string]fs.FileMode{
		r.socket: fs.ModeSocket | 0o600, r.socket + ".lock": 0o600, filepath.Dir(r.socket): fs.ModeDir | 0o755,
	} {
		info, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != want {
			t.Errorf("%s has mode %v, want %v", path, info.Mode(), want)
		}
	}
}

// The file's mode stops other users, and causes the clients' error.
func TestTheSocketRefusesAnotherUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can become another user")
	}
	r := openRig(t)
	if err := os.Chmod(r.dir, 0o711); err != nil {
		t.Fatal(err)
	}
	refused := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread, with another user's file permissions, ends with the goroutine
		if err := unix.Setfsgid(65534); err != nil {
			refused <- err
			return
		}
		if err := unix.Setfsuid(65534); err != nil {
			refused <- err
			return
		}
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err == nil {
			err = unix.Connect(fd, &unix.SockaddrUnix{Name: r.socket})
			err = errors.Join(err, unix.Close(fd))
		}
		refused <- err
	}()
	if err := <-refused; !errors.Is(err, fs.ErrPermission) {
		t.Errorf("another user is told %v", err)
	}
}

// In a world-writable folder, the lock beside the socket may belong to another user, and be held forever.
func TestSocket_LockOfAnotherUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can give a file to another user")
	}
	d := socketOpener{path: filepath.Join(t.TempDir(), "s")}
	if err := os.WriteFile(d.lockPath(), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(d.lockPath(), 12345, -1); err != nil {
		t.Fatal(err)
	}
	if l, err := d.open(t.Context()); err == nil || !strings.Contains(err.Error(), "belongs to the user 12345") {
		t.Errorf("got %v, %v", l, err)
	}
}

// On a full file system the socket opens: the PID in its lock, for the error of another agent, has no room.
func TestSocket_FullFileSystem(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can mount")
	}
	dir := tempDir(t)
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4k"); errors.Is(err, unix.EPERM) {
		t.Skip("this process may not mount")
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	if err := os.WriteFile(filepath.Join(dir, "other"), make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "more"), make([]byte, 1), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("the file system is not full: %v", err)
	}
	d := &socketOpener{path: filepath.Join(dir, "s")}
	l, err := d.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(l.Close(), d.lock.Close()); err != nil {
		t.Error(err)
	}
}

// The socket belongs to the configured group, by name or number. Without that group the agent opens no socket.
func TestTheSocketOfAGroup(t *testing.T) {
	for group, want := range map[string]uint32{"bin": 2, "4711": 4711} {
		d := &socketOpener{path: filepath.Join(tempDir(t), "s"), group: group}
		l, err := d.open(t.Context())
		if errors.Is(err, fs.ErrPermission) {
			t.Skip("files can be given to groups by root alone")
		}
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Lstat(d.path)
		if err != nil || info.Mode().Perm() != 0o660 || info.Sys().(*syscall.Stat_t).Gid != want {
			t.Errorf("%s: %v %+v", group, err, info)
		}
		if err := errors.Join(l.Close(), d.close()); err != nil {
			t.Error(err)
		}
	}
	d := &socketOpener{path: filepath.Join(tempDir(t), "s"), group: "none-such"}
	if _, err := d.open(t.Context()); err == nil || err.Error() != `there is no group "none-such" (--admin-socket-group)` {
		t.Errorf("%v", err)
	}
	if err := d.close(); err != nil {
		t.Error(err)
	}
}

// TestTheModeIsThereBeforeTheName detects a socket that becomes private only after its creation.
func TestTheModeIsThereBeforeTheName(t *testing.T) {
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	path := filepath.Join(tempDir(t), "s")
	lc := net.ListenConfig{Control: privately}
	l, err := lc.Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if info, err := os.Lstat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

func TestASecondAgentIsRefused(t *testing.T) {
	r := openRig(t)
	second := NewListeners(Config{AdminSocket: r.socket, Board: board.New()})
	defer func() { _ = second.Close() }()
	err := second.Open(t.Context())
	if !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), "another playlet is running on "+r.socket) {
		t.Fatalf("a second agent was told %v", err)
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.client.Version(t.Context()); err != nil {
		t.Errorf("the first suffered: %v", err)
	}
}

// TestStartingAgent_IsAlive covers two agents that start at once, which a check of the socket alone would miss.
func TestStartingAgent_IsAlive(t *testing.T) {
	r := newRig(t, nil)
	if err := os.MkdirAll(filepath.Dir(r.socket), 0o755); err != nil {
		t.Fatal(err)
	}
	starting := &socketOpener{path: r.socket}
	if err := starting.claim(); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("another playlet is running on %s (process %d)", r.socket, os.Getpid())
	if err := r.listeners.Open(t.Context()); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
	if err := starting.close(); err != nil {
		t.Fatal(err)
	}
	if err := r.listeners.Open(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestADeadAgentsSocketIsReplaced kills a process that holds the lock and listens on the socket.
func TestADeadAgentsSocketIsReplaced(t *testing.T) {
	r := newRig(t, nil)
	dead := exec.Command(os.Args[0], "-test.run=^TestAgentToBeKilled$")
	dead.Env = append(os.Environ(), "PLAYLET_TEST_SOCKET="+r.socket)
	out, err := dead.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := dead.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "listening\n" {
		t.Fatalf("it said %q, %v", line, err)
	}
	if err := r.listeners.Open(t.Context()); !errors.Is(err, ErrInUse) {
		t.Errorf("while it lived: %v", err)
	}
	if err := dead.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = dead.Wait() // killed, as expected
	if _, err := os.Lstat(r.socket); err != nil {
		t.Fatalf("the dead left no socket: %v", err)
	}
	if _, err := r.client.Version(t.Context()); !errors.Is(err, api.ErrNotRunning) {
		t.Errorf("a client of the dead is told %v", err)
	}
	if err := r.listeners.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	if v, err := r.client.Version(t.Context()); err != nil || v.PID != os.Getpid() {
		t.Errorf("%+v, %v", v, err)
	}
}

func TestAgentToBeKilled(t *testing.T) {
	socket := os.Getenv("PLAYLET_TEST_SOCKET")
	if socket == "" {
		t.Skip("it is started by another test")
	}
	l := NewListeners(Config{AdminSocket: socket, Board: board.New()})
	if err := l.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stdout.WriteString("listening\n"); err != nil {
		t.Fatal(err)
	}
	select {} // until it is killed
}

func TestForeignSocket_IsKept(t *testing.T) {
	dir := tempDir(t)
	file, link, live := filepath.Join(dir, "file"), filepath.Join(dir, "link"), filepath.Join(dir, "live")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "unix", live)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	datagrams, err := lc.ListenPacket(t.Context(), "unixgram", filepath.Join(dir, "datagrams"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = datagrams.Close() }()
	for path, want := range map[string]string{
		filepath.Join(dir, "datagrams"): "looking whether anyone listens",
		file:                            "is not a socket", link: "is not a socket", live: "another program listens there",
		"admin.sock": "is not absolute", "@abstract": "is not absolute",
		filepath.Join(dir, strings.Repeat("x", 107)): "is longer than the 107 bytes",
		filepath.Join(file, "s"):                     "making the socket's folder",
	} {
		listeners := NewListeners(Config{AdminSocket: path, Board: board.New()})
		if err := listeners.Open(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
		if err := listeners.Close(); err != nil {
			t.Error(err)
		}
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "precious" {
		t.Errorf("%q, %v", text, err)
	}
	for _, path := range []string{link, live, filepath.Join(dir, "datagrams")} {
		if _, err := os.Lstat(path); err != nil {
			t.Error(err)
		}
	}
}

func TestClose_RemovesSocketForNextAgent(t *testing.T) {
	r := openRig(t)
	if err := r.listeners.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(r.socket); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
	if err := r.listeners.Open(t.Context()); !errors.Is(err, errClosed) {
		t.Errorf("it opened after its end: %v", err)
	}
	other := NewListeners(Config{AdminSocket: r.socket, Board: board.New()})
	if err := other.Open(t.Context()); err != nil {
		t.Error(err)
	}
	if err := r.listeners.Close(); err != nil { // again: it must not touch another agent's socket
		t.Error(err)
	}
	if _, err := os.Lstat(r.socket); err != nil {
		t.Error(err)
	}
	if err := other.Close(); err != nil {
		t.Error(err)
	}
}

// TestTheWholeFolderMayGo removes socket and lock, as if /run were cleaned up under a running agent.
func TestTheWholeFolderMayGo(t *testing.T) {
	r := openRig(t)
	if err := os.RemoveAll(filepath.Dir(r.socket)); err != nil {
		t.Fatal(err)
	}
	if err := r.listeners.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.client.Version(t.Context()); err != nil {
		t.Error(err)
	}
	second := NewListeners(Config{AdminSocket: r.socket, Board: board.New()})
	if err := second.Open(t.Context()); !errors.Is(err, ErrInUse) {
		t.Errorf("the new lock does not hold: %v", err)
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
}
