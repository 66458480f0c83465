// Package fusetest provides a FUSE file system for tests. Its server answers, hangs or dies on request.
package fusetest

import (
	"encoding/binary"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// Folder is the only entry in the directory of a Server. It is an empty directory.
const Folder = "folder"

// Server serves one directory. The kernel caches none of its answers.
type Server struct {
	device  *os.File
	serving sync.WaitGroup
	asked   atomic.Int64

	mu    sync.Mutex
	hangs bool
	held  [][]byte // replies withheld from the kernel
}

// Mount mounts the directory at a path until the test ends. It skips the test if FUSE cannot be mounted.
func Mount(t testing.TB, at string) *Server {
	t.Helper()
	return MountFor(t, at, 0)
}

// MountFor is like Mount, for the user and group with this ID. The kernel refuses all other users, including root, with EACCES.
func MountFor(t testing.TB, at string, id int) *Server {
	t.Helper()
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Skipf("FUSE is not available: %v", err)
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=%d,group_id=%d", fd, id, id)
	if err := unix.Mount("fusetest", at, "fuse", 0, options); err != nil {
		_ = unix.Close(fd)
		t.Skipf("FUSE cannot be mounted: %v", err)
	}
	// The device can be polled from now on.
	s := &Server{device: os.NewFile(uintptr(fd), "/dev/fuse")}
	s.serving.Go(s.serve)
	t.Cleanup(func() {
		s.Die() // hung calls return
		for unix.Unmount(at, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) == nil {
		}
	})
	return s
}

// Hang leaves all further requests unanswered.
func (s *Server) Hang() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hangs = true
}

// Resume answers the requests received since Hang, and all further requests.
func (s *Server) Resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hangs = false
	for _, reply := range s.held {
		_, _ = s.device.Write(reply) // fails if the kernel has dropped an interrupted request
	}
	s.held = nil
}

// Die ends the server. The kernel fails all calls with ENOTCONN.
func (s *Server) Die() {
	_ = s.device.Close() // the kernel sees the end of the connection
	s.serving.Wait()
}

// Requests returns the number of requests received so far. The init request of the mount does not count.
func (s *Server) Requests() int64 { return s.asked.Load() }

// The request codes of fuse(4), and the sizes of the replies.
const (
	opLookup, opForget, opGetattr, opStatfs, opInit, opOpendir, opReaddir   = 1, 2, 3, 17, 26, 27, 28
	opReleasedir, opAccess, opInterrupt, opDestroy, opBatchForget, opAbsent = 29, 34, 36, 38, 42, 0

	headerSize, initSize, attrSize, openSize, statfsSize, entrySize = 16, 64, 104, 16, 80, 128
)

func (s *Server) serve() {
	request := make([]byte, 1<<17)
	for {
		n, err := s.device.Read(request)
		if err != nil || n < 40 {
			return
		}
		op := binary.NativeEndian.Uint32(request[4:])
		reply := answer(op, request[40:n])
		if reply != nil {
			binary.NativeEndian.PutUint32(reply, uint32(len(reply))) //nolint:gosec // an answer is short
			copy(reply[8:headerSize], request[8:headerSize])
		}
		s.send(op, reply)
	}
}

func (s *Server) send(op uint32, reply []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if op != opInit {
		s.asked.Add(1)
	}
	switch {
	case reply == nil:
	case s.hangs && op != opInit:
		s.held = append(s.held, reply)
	default:
		_, _ = s.device.Write(reply) // fails if the kernel has dropped an interrupted request
	}
}

// answer returns the reply with an empty header, or nil if the request has no reply.
func answer(op uint32, arguments []byte) []byte {
	put, body := binary.NativeEndian.PutUint32, []byte(nil)
	if op == opLookup && string(arguments) != Folder+"\x00" {
		op = opAbsent
	}
	switch op {
	case opLookup:
		body = make([]byte, entrySize)
		put(body, 2)
		put(body[40:], 2)
		put(body[100:], unix.S_IFDIR|0o755)
		put(body[104:], 2)
	case opForget, opBatchForget, opInterrupt:
		return nil
	case opInit:
		body = make([]byte, initSize)
		put(body, 7)
		put(body[4:], 31)
		put(body[20:], 4096)
	case opGetattr:
		body = make([]byte, attrSize)
		put(body[16:], 1)
		put(body[76:], unix.S_IFDIR|0o755)
		put(body[80:], 2)
	case opOpendir:
		body = make([]byte, openSize)
	case opStatfs:
		body = make([]byte, statfsSize)
	case opReaddir, opReleasedir, opAccess, opDestroy:
	default:
		out := make([]byte, headerSize)
		missing := -int32(unix.ENOENT)
		put(out[4:], uint32(missing)) //nolint:gosec // the protocol has a negative number there
		return out
	}
	return append(make([]byte, headerSize), body...)
}
