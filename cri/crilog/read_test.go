package crilog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// waitLimit bounds waits that end at once in a passing test.
const waitLimit = time.Minute

// testDir is a folder to which no other party can write.
type testDir struct{ *os.Root }

func (d testDir) Names(name string) ([]string, error) {
	f, err := d.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return f.Readdirnames(-1)
}

func (d testDir) OpenBeneath(name string, flags int, mode fs.FileMode) (*os.File, error) {
	return os.OpenFile(filepath.Join(d.Root.Name(), name), flags, mode)
}

func (d testDir) Unlink(name string) error { return d.Remove(name) }

// folder is a log written to as by a runtime.
type folder struct {
	*testing.T
	path string
	dir  testDir
	file *os.File
	line int
}

func newFolder(t *testing.T) *folder {
	f := &folder{T: t, path: t.TempDir()}
	var err error
	f.dir.Root, err = os.OpenRoot(f.path)
	f.must(err)
	f.reopen()
	t.Cleanup(func() { f.must(errors.Join(f.file.Close(), f.dir.Close())) })
	return f
}

func (f *folder) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

func (f *folder) reopen() {
	file, err := os.OpenFile(filepath.Join(f.path, "0.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	f.must(err)
	if f.file != nil {
		f.must(f.file.Close())
	}
	f.file = file
}

// write writes numbered lines, one a minute.
func (f *folder) write(lines int) {
	for range lines {
		f.line++
		_, err := fmt.Fprintf(f.file, "%s stdout F line %d\n",
			noon.Add(time.Duration(f.line)*time.Minute).Format(time.RFC3339Nano), f.line)
		f.must(err)
	}
}

// rotate rotates the log as the logs actor does. It calls between while the runtime still writes to the renamed file.
func (f *folder) rotate(at time.Time, maxFiles int, between func()) {
	names, err := f.dir.Names(".")
	f.must(err)
	p := PlanRotation(names, "0.log", at, maxFiles)
	for _, name := range p.Remove {
		f.must(f.dir.Unlink(name))
	}
	f.must(f.dir.Rename("0.log", p.To))
	between()
	f.reopen()
	for _, name := range p.Compress {
		f.must(Compress(context.Background(), f.dir, name))
	}
}

func (f *folder) read(o Options) string {
	f.Helper()
	var out bytes.Buffer
	f.must(Read(f.Context(), f.dir, "0.log", o, &out))
	return out.String()
}

func numbers(from, to int) string {
	var b strings.Builder
	for i := from; i <= to; i++ {
		fmt.Fprintf(&b, "line %d\n", i)
	}
	return b.String()
}

func p(n int64) *int64 { return &n }

func TestReadOverRotatedFiles(t *testing.T) {
	f := newFolder(t)
	for range 3 {
		f.write(10)
		f.rotate(noon, 5, func() {})
	}
	f.write(5)
	for _, c := range []struct {
		name string
		o    Options
		want string
	}{
		{"all", Options{}, numbers(1, 35)},
		{"the end", Options{Tail: p(3)}, numbers(33, 35)},
		{"just the log", Options{Tail: p(5)}, numbers(31, 35)},
		{"over a rotation", Options{Tail: p(12)}, numbers(24, 35)},
		{"from a compressed file", Options{Tail: p(27)}, numbers(9, 35)},
		{"more than there is", Options{Tail: p(99)}, numbers(1, 35)},
		{"none", Options{Tail: p(0)}, ""},
		{"since", Options{Since: noon.Add(25 * time.Minute)}, numbers(25, 35)},
		{"so many bytes", Options{LimitBytes: p(10)}, "line 1\nlin"},
		{"no bytes", Options{LimitBytes: p(0)}, ""},
		{"with times", Options{Tail: p(1), Timestamps: true}, "2026-07-01T12:35:00.000000000Z line 35\n"},
	} {
		if got := f.read(c.o); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	f.must(os.Remove(filepath.Join(f.path, "0.log"))) // the runtime has not opened the new file yet
	if got := f.read(Options{Tail: p(3)}); got != numbers(28, 30) {
		t.Errorf("between the steps of a rotation: %q", got)
	}
}

// A line that is split by a rotation, or longer than the runtime's limit, is printed as one.
func TestPartialAndForeignLines(t *testing.T) {
	f := newFolder(t)
	const at = "2026-07-01T12:00:00Z "
	f.must(os.WriteFile(filepath.Join(f.path, "0.log.20260701-120000"),
		[]byte(at+"stdout F first\n"+at+"stdout P half of it, \n"), 0o600))
	text := at + "stdout F and the rest\n" + "{\"log\":\"no line of the CRI's\"}\n\n" + at + "stderr F:x \n" + at +
		"stdin F x\n" + at + "stdout F the last"
	f.must(os.WriteFile(filepath.Join(f.path, "0.log"), []byte(text), 0o600))
	if got := f.read(Options{}); got != "first\nhalf of it, and the rest\n\nthe last" {
		t.Errorf("%q", got)
	}
	if got := f.read(Options{Timestamps: true}); strings.Count(got, "2026-07-01T12:00:00.000000000Z") != 4 {
		t.Errorf("%q", got)
	}
}

func TestOnlyOrdinaryFilesAreRead(t *testing.T) {
	for _, name := range []string{"0.log", "0.log.20260701-120000"} {
		f := newFolder(t)
		f.must(os.WriteFile(filepath.Join(f.path, "secret"), []byte("2026-07-01T12:00:00Z stdout F secret\n"), 0o600))
		if name == "0.log" {
			f.must(os.Remove(filepath.Join(f.path, name)))
		}
		f.must(os.Symlink("secret", filepath.Join(f.path, name)))
		var out bytes.Buffer
		if err := Read(t.Context(), f.dir, "0.log", Options{}, &out); !errors.Is(err, ErrNotAFile) || out.Len() > 0 {
			t.Errorf("a link at %s: %v, %q", name, err, out.String())
		}
	}
	f := newFolder(t)
	f.must(os.Remove(filepath.Join(f.path, "0.log")))
	if err := Read(t.Context(), f.dir, "0.log", Options{}, &bytes.Buffer{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("none at all: %v", err)
	}
}

// reader follows a log in a goroutine.
type reader struct {
	mu   sync.Mutex
	out  bytes.Buffer
	live bool
	done chan error
}

func (r *reader) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.out.Write(p)
}

func (r *reader) has(n int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.HasSuffix("\n"+r.out.String(), fmt.Sprintf("\nline %d\n", n))
}

func (r *reader) isLive(context.Context) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.live
}

func (f *folder) follow(o Options) *reader {
	r := &reader{live: true, done: make(chan error, 1)}
	o.Live = r.isLive
	go func() { r.done <- Read(f.Context(), f.dir, "0.log", o, r) }()
	return r
}

// A follower reads each line once at any rotation, including lines written to the renamed file before and after the new one
// exists.
func TestFollowOverRotations(t *testing.T) {
	f := newFolder(t)
	f.write(3)
	var rotating sync.Mutex // while it is held, the renamed file has not settled
	r := f.follow(Options{settled: func(context.Context, time.Time) {
		rotating.Lock()
		defer rotating.Unlock()
	}})
	at := noon
	for i := range 4 {
		f.write(5)
		at = at.Add(10 * time.Second)
		rotating.Lock()
		f.rotate(at, 10, func() {
			f.write(3)
			old := f.file
			f.file = nil
			f.reopen()
			late := f.file
			f.file = old
			f.write(1) // the runtime has opened the new file but still writes to the old one
			f.must(late.Close())
			rotating.Unlock()
		})
		f.write(i)
		for deadline := time.Now().Add(waitLimit); !r.has(f.line); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("it waits for line %d: %q", f.line, r.out.String())
			}
		}
	}
	r.mu.Lock()
	r.live = false
	r.mu.Unlock()
	f.write(2)
	f.must(<-r.done)
	if got := r.out.String(); got != numbers(1, f.line) {
		t.Errorf("%q, want the lines to %d", got, f.line)
	}
}

// A follower that begins during a rotation reads the late lines of the renamed file.
func TestFollowFromTheMidstOfARotation(t *testing.T) {
	f := newFolder(t)
	f.write(3)
	old := f.file
	f.must(os.Rename(filepath.Join(f.path, "0.log"), filepath.Join(f.path, "0.log.20260701-120000")))
	f.file = nil
	f.reopen()
	next := f.file
	var late sync.Once
	var out bytes.Buffer
	f.must(Read(f.Context(), f.dir, "0.log", Options{
		Live: func(context.Context) bool { return false },
		settled: func(context.Context, time.Time) {
			late.Do(func() {
				f.file = old
				f.write(1)
				f.file = next
				f.write(1)
				f.must(old.Close())
			})
		},
	}, &out))
	if out.String() != numbers(1, 5) {
		t.Errorf("%q", out.String())
	}
}

// A slow follower, during whose reads files were rotated several times and compressed, continues with the next file.
func TestASlowFollowerGoesOn(t *testing.T) {
	f := newFolder(t)
	f.write(3)
	c := &cursor{dir: f.dir, base: "0.log", print: newPrinter(Options{}, &bytes.Buffer{})}
	part, err := openPart(f.dir, File{Name: "0.log"})
	f.must(err)
	c.files = openFiles{part}
	for range 3 {
		f.rotate(noon, 10, func() {})
		f.write(3)
	}
	for want := 4; want <= 10; want += 3 {
		next, err := c.successor(part)
		f.must(err)
		if next == nil {
			t.Fatalf("there is nothing after %q", part.stamp)
		}
		var out bytes.Buffer
		_, err = out.ReadFrom(next.content)
		f.must(err)
		if !strings.Contains(out.String(), fmt.Sprintf("line %d\n", want)) {
			t.Errorf("after %q comes %q", part.stamp, out.String())
		}
		c.last = max(c.last, part.stamp)
		f.must(part.Close())
		part = next
	}
	if next, err := c.successor(part); next != nil || err != nil {
		t.Errorf("after the log itself: %v, %v", next, err)
	}
	f.must(part.Close())
}

func TestFollowEndsWithItsReader(t *testing.T) {
	f := newFolder(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- Read(ctx, f.dir, "0.log", Options{Live: func(context.Context) bool { return true }}, &bytes.Buffer{})
	}()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// FuzzPrint checks that any log, in chunks of any size, is read without a panic and with the same result as in one piece.
func FuzzPrint(f *testing.F) {
	f.Add([]byte("2026-07-01T12:00:00Z stdout F x\n2026-07-01T12:00:00Z stderr P y\nrubbish\n2026-07-01T12:00:00Z stdout F z"),
		uint64(1), int64(0))
	f.Add([]byte("2026-07-01T12:00:00.123456789+02:00 stdout F:a:b \n  \n\x00"), uint64(2), int64(1))
	f.Fuzz(func(t *testing.T, data []byte, seed uint64, skip int64) {
		skip = min(max(skip, 0), 5)
		at := func(size func() int) string {
			var out bytes.Buffer
			pr := newPrinter(Options{Timestamps: seed%2 == 0}, &out)
			left := skip
			for rest := data; len(rest) > 0; {
				n := copy(pr.space()[:min(size(), block)], rest)
				left = pr.add(n, left)
				rest = rest[n:]
			}
			if err := pr.end(); err != nil {
				t.Fatal(err)
			}
			return out.String()
		}
		random := rand.New(rand.NewPCG(seed, 0))
		whole, pieces := at(func() int { return block }), at(func() int { return 1 + random.IntN(20) })
		if whole != pieces {
			t.Errorf("in pieces %q, whole %q", pieces, whole)
		}
		if l, ok := ParseLine(data); ok && l.At.IsZero() && !bytes.HasPrefix(data, []byte("0001-01-01")) {
			t.Errorf("%q has no time", data)
		}
	})
}
