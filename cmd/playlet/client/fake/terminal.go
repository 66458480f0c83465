package fake

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Terminal returns a new pseudo terminal that is closed after the test: the end of the program, the end of the user, and all
// output so far.
func Terminal(t *testing.T) (program, person *os.File, printed func() string) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skip("this machine has no pseudo terminals: ", err)
	}
	number := 0
	conn, err := person.SyscallConn()
	if err == nil {
		err = conn.Control(func(fd uintptr) {
			err = errors.Join(unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0))
			number, _ = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	if program, err = os.OpenFile(fmt.Sprint("/dev/pts/", number), os.O_RDWR|syscall.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var shown strings.Builder
	var reading sync.WaitGroup
	reading.Go(func() {
		buf := make([]byte, 4096)
		for {
			n, err := person.Read(buf)
			if err != nil {
				return
			}
			mu.Lock()
			shown.Write(buf[:n])
			mu.Unlock()
		}
	})
	t.Cleanup(func() {
		_ = person.Close() // ends all reads of both ends
		reading.Wait()
		_ = program.Close()
	})
	return program, person, func() string {
		mu.Lock()
		defer mu.Unlock()
		return shown.String()
	}
}
