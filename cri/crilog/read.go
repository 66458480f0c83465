package crilog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Options selects the part of a log to read.
type Options struct {
	Tail       *int64    // number of lines from the end; nil means all
	LimitBytes *int64    // maximum number of bytes; nil means no limit
	Since      time.Time // skip older lines; zero means none
	Timestamps bool      // prefix each line with its time
	Stream     string    // only "stdout" or "stderr"; empty means both. It cannot be combined with Tail, which counts all lines
	// Live reports whether the container can still write. It is called once a second while the log is quiet, and the log is
	// followed until it returns false. If it is nil, the log is not followed.
	Live func(context.Context) bool
	// PassedOver is called for a rotated file that cannot be read to its end, with the reason. It may be nil.
	PassedOver func(name string, why error)

	settled func(ctx context.Context, since time.Time) // waits until a file has been unchanged for settle; nil means by the clock
}

const (
	// liveEvery is the interval between calls of Live.
	liveEvery = time.Second
	// settle is how long a rotated file must be unchanged to be considered finished: after the runtime confirms the reopening,
	// the last lines may still be on their way to the old file.
	settle = time.Second
)

// Read writes the content of a log including its rotated files, in order. A log that is not followed ends where it ended when it
// was opened, so that Tail is exact, and so that a container that writes faster than out does not keep the reader for ever
// (kubernetes/kubernetes#72628). It only opens regular files. It skips a rotated file that is damaged or was removed in the
// meantime. It returns at the end of the log, when ctx ends, or when out fails, with that error.
func Read(ctx context.Context, dir Dir, base string, o Options, out io.Writer) (err error) {
	files, err := openAll(dir, base)
	if err != nil {
		return err
	}
	newest := files.newest()
	skip, err := files.tail(ctx, dir, o.Tail)
	if err != nil {
		return errors.Join(err, files.close())
	}
	p := newPrinter(o, out)
	c := &cursor{dir: dir, base: base, files: files, skip: skip, print: p, last: newest, tell: o.PassedOver, settled: o.settled,
		follows: o.Live != nil}
	if c.settled == nil {
		c.settled = func(ctx context.Context, since time.Time) { c.rest(ctx, min(settle, time.Until(since.Add(settle)))) }
	}
	if o.Live != nil {
		if c.watch, err = newWatch(dir); err != nil {
			c.watch = nil // no more watches available: the folder is polled each second
		}
	}
	err = c.run(ctx, o)
	if errors.Is(err, errEnough) {
		err = nil
	}
	return errors.Join(err, c.close())
}

// cursor iterates over the files of a log.
type cursor struct {
	dir     Dir
	base    string
	files   openFiles // remaining files, oldest first; the first is being read
	skip    int64     // lines of the first file to skip
	print   *printer
	watch   *watch
	tell    func(name string, why error) // called for skipped files; may be nil
	settled func(ctx context.Context, since time.Time)
	follows bool   // otherwise files are read up to the size that they had when they were opened
	last    string // stamp of the newest rotated file that was read or is older than all files to read
}

func (c *cursor) run(ctx context.Context, o Options) error {
	for len(c.files) > 0 {
		f := c.files[0]
		if err := c.open(f); err != nil {
			return err
		}
		if err := c.drain(ctx, f); err != nil {
			return err
		}
		var err error
		switch {
		case c.follows && len(c.files) == 1:
			err = c.follow(ctx, f, o.Live)
		case c.follows && len(c.files) == 2 && f.logFile != nil: // it may have been rotated just now
			err = c.finish(ctx, f, f.changed())
		}
		if err != nil {
			return err
		}
		if c.skip > 0 {
			c.print.used, c.skip = 0, 0 // its incomplete last line is dropped as well
		}
		if err := c.print.end(); err != nil {
			return err
		}
		c.last = max(c.last, f.stamp)
		c.files = c.files[1:]
		if err := f.Close(); err != nil {
			return err
		}
	}
	return c.print.end()
}

// drain prints the content that a file has by now.
func (c *cursor) drain(ctx context.Context, f *part) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := f.content.Read(c.print.space())
		if n > 0 {
			c.skip = c.print.add(n, c.skip)
		}
		switch {
		case c.print.failed != nil:
			return c.print.failed
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && f.packed && unreadable(err):
			c.passOver(f, fmt.Errorf("%s: %w", f.name, err))
			return nil
		case err != nil:
			return err
		}
	}
}

// follow prints additions to a file until its successor exists, which is then opened, or the container can no longer write.
func (c *cursor) follow(ctx context.Context, f *part, live func(context.Context) bool) error {
	quiet := time.Now() // time of the last output or the last call of live
	for {
		c.await(ctx, time.Until(quiet.Add(liveEvery)))
		// Other runs may write to the folder all the time, so activity there proves nothing about this one.
		asked := time.Since(quiet) >= liveEvery
		ended := asked && !live(ctx)
		before := c.print.seen
		if err := c.drain(ctx, f); err != nil {
			return err
		}
		if asked || c.print.seen != before {
			quiet = time.Now()
		}
		next, err := c.successor(f)
		if err != nil {
			return err
		}
		if next == nil {
			if ended {
				return nil
			}
			continue
		}
		c.files = append(c.files, next)
		if ended {
			return nil
		}
		return c.finish(ctx, f, time.Now())
	}
}

// finish prints further additions to a rotated file, unchanged since the given time, until there are none.
func (c *cursor) finish(ctx context.Context, f *part, since time.Time) error {
	for {
		before := c.print.seen
		c.settled(ctx, since)
		if err := c.drain(ctx, f); err != nil || c.print.seen == before {
			return err
		}
		since = time.Now()
	}
}

// await waits for activity in the log's folder.
func (c *cursor) await(ctx context.Context, most time.Duration) {
	if c.watch == nil {
		c.rest(ctx, most)
		return
	}
	c.watch.wait(ctx, most)
}

func (c *cursor) rest(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func (c *cursor) close() error {
	err := c.files.close()
	if c.watch != nil {
		err = errors.Join(err, c.watch.close())
	}
	return err
}

// maxWatches limits the instances of inotify. The machine has 128 for all processes of root, those in containers included: more
// readers than that would make applications fail (k0sproject/k0s#8113). Further readers look at their folders once a second.
const maxWatches = 16

// watches has one element for each instance in use.
var watches = make(chan struct{}, maxWatches)

var errManyWatches = errors.New("there are as many watches as may be")

// watch reports changes of files in a folder (inotify(7)).
type watch struct {
	f     *os.File
	space []byte
}

func newWatch(dir Dir) (w *watch, err error) {
	select {
	case watches <- struct{}{}:
	default:
		return nil, errManyWatches
	}
	defer func() {
		if err != nil {
			<-watches
		}
	}()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, err
	}
	w = &watch{os.NewFile(uintptr(fd), "inotify"), make([]byte, 4096)}
	at, err := dir.OpenBeneath(".", unix.O_PATH|unix.O_DIRECTORY, 0)
	if err == nil {
		_, err = unix.InotifyAddWatch(fd, fmt.Sprintf("/proc/self/fd/%d", at.Fd()), unix.IN_MODIFY|unix.IN_CREATE|unix.IN_MOVE)
		err = errors.Join(err, at.Close())
	}
	if err != nil {
		return nil, errors.Join(err, w.f.Close())
	}
	return w, nil
}

// wait waits for activity since the previous wait, at most for the given time.
func (w *watch) wait(ctx context.Context, most time.Duration) {
	if w.f.SetReadDeadline(time.Now().Add(most)) != nil {
		return
	}
	stop := context.AfterFunc(ctx, func() { _ = w.f.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	_, _ = w.f.Read(w.space)
}

func (w *watch) close() error {
	<-watches
	return w.f.Close()
}
