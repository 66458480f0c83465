package crilog

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/playlet-dev/playlet/cri/stall"
)

func (r *reader) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.live = false
}

// The next run writes to the same folder. That does not keep a follower of the ended run waiting.
func TestFollowEndsBesideABusySuccessor(t *testing.T) {
	f := newFolder(t)
	f.write(3)
	other, err := os.Create(filepath.Join(f.path, "1.log"))
	f.must(err)
	defer func() { f.must(other.Close()) }()
	r := f.follow(Options{})
	r.end()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(waitLimit); ; {
		select {
		case err := <-r.done:
			if err != nil || r.out.String() != numbers(1, 3) {
				t.Errorf("%q, %v", r.out.String(), err)
			}
			return
		case <-tick.C:
			_, err := other.WriteString("x\n")
			f.must(err)
		}
		if time.Now().After(deadline) {
			t.Fatal("it is still followed")
		}
	}
}

// After a reverted rotation the file has its old name again, and gets another one at the next rotation.
func TestFollowOverARotationTakenBack(t *testing.T) {
	for name, noticed := range map[string]bool{"noticed": true, "missed": false} {
		t.Run(name, func(t *testing.T) {
			f := newFolder(t)
			f.write(3)
			c := &cursor{dir: f.dir, base: "0.log", print: newPrinter(Options{}, &bytes.Buffer{})}
			p, err := openPart(f.dir, File{Name: "0.log"})
			f.must(err)
			first := File{Name: "0.log.20260701-120000"}
			f.must(f.dir.Rename("0.log", first.Name))
			if next, err := c.successor(p); next != nil || err != nil {
				t.Fatalf("%v, %v", next, err)
			}
			f.must(f.dir.Rename(first.Name, "0.log"))
			if noticed {
				if next, err := c.successor(p); next != nil || err != nil {
					t.Fatalf("%v, %v", next, err)
				}
			}
			f.write(1)
			f.rotate(noon.Add(10*time.Second), 5, func() {})
			f.write(1)
			next, err := c.successor(p)
			f.must(err)
			if next == nil {
				t.Fatal("there is nothing after it")
			}
			text, err := io.ReadAll(next.content)
			f.must(err)
			if got := string(text); !strings.HasSuffix(got, "line 5\n") || strings.Contains(got, "line 1\n") {
				t.Errorf("after it comes %q", got)
			}
			f.must(errors.Join(p.Close(), next.Close()))
		})
	}
}

// pack writes a compressed file of so many lines, truncated to a percentage of its bytes.
func (f *folder) pack(name string, lines, percent int) {
	var b bytes.Buffer
	zip := gzip.NewWriter(&b)
	for range lines {
		f.line++
		_, err := fmt.Fprintf(zip, "2026-07-01T12:00:00Z stdout F line %d\n", f.line)
		f.must(err)
	}
	f.must(zip.Close())
	f.must(os.WriteFile(filepath.Join(f.path, name), b.Bytes()[:b.Len()*percent/100], 0o600))
}

// An unreadable file hides none of the others, and is reported.
func TestABadRotatedFileIsPassedOver(t *testing.T) {
	for name, percent := range map[string]int{"empty": 0, "truncated": 60, "without its end": 99} {
		t.Run(name, func(t *testing.T) {
			f := newFolder(t)
			f.pack("0.log.20260701-110000.gz", 2, 100)
			f.pack("0.log.20260701-120000.gz", 1000, percent)
			f.pack("0.log.20260701-130000.gz", 2, 100)
			f.write(3)
			last := f.line
			var bad []string
			o := Options{PassedOver: func(name string, err error) {
				if err == nil {
					t.Error("it does not say why")
				}
				bad = append(bad, name)
			}}
			f.must(Readable(f.dir, "0.log"))
			o.Tail = p(5)
			if got := f.read(o); got != numbers(last-4, last) || len(bad) > 0 {
				t.Errorf("the end: %q, passed over %q", got, bad)
			}
			for _, tail := range []*int64{nil, p(9999)} {
				bad, o.Tail = nil, tail
				got := f.read(o)
				if !strings.HasPrefix(got, numbers(1, 2)) || !strings.HasSuffix(got, "\n"+numbers(last-4, last)) {
					t.Errorf("all: %q", got)
				}
				for line := range strings.Lines(got) { // an incomplete line is not printed
					var n int
					if _, err := fmt.Sscanf(line, "line %d\n", &n); err != nil {
						t.Errorf("%q: %v", line, err)
					}
				}
				if strings.Join(bad, " ") != "0.log.20260701-120000.gz" {
					t.Errorf("passed over: %q", bad)
				}
			}
		})
	}
}

// The number of open files does not grow with the number of rotated files.
func TestRotatedFilesAreOpenedWhenTheirTurnComes(t *testing.T) {
	f := newFolder(t)
	const files = 50
	for i := range files {
		f.pack(fmt.Sprintf("0.log.20260701-1200%02d.gz", i), 1, 100)
	}
	f.write(1)
	for _, tail := range []*int64{nil, p(1), p(999)} {
		most := 0
		out := writerFunc(func(b []byte) (int, error) {
			open, err := os.ReadDir("/proc/self/fd")
			most = max(most, len(open))
			return len(b), err
		})
		before, err := os.ReadDir("/proc/self/fd")
		f.must(err)
		f.must(Read(t.Context(), f.dir, "0.log", Options{Tail: tail}, out))
		if most == 0 || most > len(before)+files/2 {
			t.Errorf("%d are open, and were %d", most, len(before))
		}
	}
}

type writerFunc func([]byte) (int, error)

func (w writerFunc) Write(b []byte) (int, error) { return w(b) }

// A file that was removed before its turn is skipped; a compressed one is read.
func TestFilesThatChangeBeforeTheirTurn(t *testing.T) {
	f := newFolder(t)
	for i := range maxOpen + 2 {
		f.write(2)
		f.rotate(noon.Add(time.Duration(i)*time.Minute), 99, func() {})
	}
	f.write(2)
	var out bytes.Buffer
	bad := 0
	o := Options{PassedOver: func(string, error) { bad++ }}
	first := true
	w := writerFunc(func(b []byte) (int, error) {
		if first {
			first = false
			f.must(f.dir.Unlink("0.log.20260701-120100.gz"))
			f.must(Compress(t.Context(), f.dir, fmt.Sprintf("0.log.20260701-12%02d00", maxOpen+1)))
		}
		return out.Write(b)
	})
	f.must(Read(t.Context(), f.dir, "0.log", o, w))
	if got := out.String(); got != numbers(1, 2)+numbers(5, f.line) || bad != 1 {
		t.Errorf("%q, passed over %d", got, bad)
	}
}

// Counting lines from the end of a log that grows as fast as it is read ends, by cancellation or by itself.
func TestTailOfABigLogEnds(t *testing.T) {
	f := newFolder(t)
	f.write(3)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p1, err := openPart(f.dir, File{Name: "0.log"})
	f.must(err)
	endless := &part{logFile: p1.logFile, name: "0.log", content: readerFunc(func(b []byte) (int, error) {
		return copy(b, "x\n"), nil
	})}
	if _, err := endless.count(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("its reader has gone: %v", err)
	}
	if n, err := endless.count(t.Context()); err != nil || n == 0 {
		t.Errorf("%d, %v", n, err)
	}
	f.must(p1.Close())
	if err := Read(ctx, f.dir, "0.log", Options{Tail: p(1)}, &bytes.Buffer{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

type readerFunc func([]byte) (int, error)

func (r readerFunc) Read(b []byte) (int, error) { return r(b) }

func TestCompress_ReportsProgress(t *testing.T) {
	f := newFolder(t)
	f.write(3)
	clock := clocktesting.NewFakeClock(noon)
	ctx, cancel := stall.New(t.Context(), clock, time.Minute)
	defer cancel()
	f.must(Compress(ctx, f.dir, "0.log"))
	clock.Step(time.Minute)
	for end := time.Now().Add(waitLimit); !clock.HasWaiters() && ctx.Err() == nil && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	f.must(ctx.Err())
}

// writingReader writes another line to the log for each part that it reads, as a container beside a slow client.
type writingReader struct {
	f     *folder
	out   bytes.Buffer
	lines int
}

func (w *writingReader) Write(p []byte) (int, error) {
	if w.lines++; w.lines > 5 {
		return 0, errors.New("the log does not end")
	}
	w.f.write(1)
	return w.out.Write(p)
}

// A log that is not followed ends, and has no more lines than requested, however fast the container writes.
func TestRead_OfABusyContainer(t *testing.T) {
	for name, c := range map[string]struct {
		tail *int64
		want string
	}{"all": {nil, numbers(1, 20)}, "tail": {p(3), numbers(18, 20)}} {
		t.Run(name, func(t *testing.T) {
			f := newFolder(t)
			f.write(10)
			f.rotate(noon, 5, func() {})
			f.write(10)
			w := &writingReader{f: f}
			if err := Read(t.Context(), f.dir, "0.log", Options{Tail: c.tail}, w); err != nil || w.out.String() != c.want {
				t.Errorf("got %q (%v), want %q", w.out.String(), err, c.want)
			}
		})
	}
}

// Readers over the limit of watches follow a log, too, and each reader returns its watch.
func TestFollow_WithoutAWatch(t *testing.T) {
	f := newFolder(t)
	follow := func(lines int) {
		t.Helper()
		f.write(lines)
		r := f.follow(Options{})
		f.write(1)
		for deadline := time.Now().Add(waitLimit); !r.has(f.line); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("it waits for line %d: %q", f.line, r.out.String())
			}
		}
		r.end()
		f.must(<-r.done)
	}
	for range 2 * maxWatches {
		w, err := newWatch(f.dir)
		f.must(err)
		f.must(w.close())
	}
	var taken []*watch
	for len(watches) < maxWatches {
		w, err := newWatch(f.dir)
		f.must(err)
		taken = append(taken, w)
	}
	if _, err := newWatch(f.dir); !errors.Is(err, errManyWatches) {
		t.Errorf("got %v for one more watch", err)
	}
	follow(1)
	for _, w := range taken {
		f.must(w.close())
	}
	follow(1)
	if len(watches) > 0 {
		t.Errorf("%d watches are left", len(watches))
	}
}
