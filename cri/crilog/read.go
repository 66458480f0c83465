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

// Options say what is read of a log.
type Options struct {
	Tail       *int64    // so many lines from the end; nil: all
	LimitBytes *int64    // at most so much; nil: no limit
	Since      time.Time // nothing older; zero: all
	Timestamps bool      // each line begins with its time
	Stream     string    // "stdout" or "stderr" alone; empty: both. It cannot be combined with Tail, which counts all lines
	// Live is asked whether the container can still write, once a second while nothing comes; the log is followed until it
	// cannot. nil: the log is not followed.
	Live func(context.Context) bool
	// PassedOver is told of a rotated file that cannot be read, or not to its end, and why. nil: nobody is.
	PassedOver func(name string, why error)

	settled func(ctx context.Context, since time.Time) // waits until a file has been the same for settle; nil: by the clock
}

const (
	// liveEvery is between questions whether the container can still write.
	liveEvery = time.Second
	// settle is how long a rotated file stays the same before it is taken for finished: when a runtime says that it writes
	// to a new one, the last lines may still be on their way to the old.
	settle = time.Second
)

// Read writes what is in a log, rotated files and all, in order. Nothing but ordinary files is opened. A rotated file that is
// damaged, or was removed meanwhile, is passed over. It returns at the end of the log, when ctx ends, or when out takes no more,
// with that error.
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
	c := &cursor{dir: dir, base: base, files: files, skip: skip, print: p, last: newest, tell: o.PassedOver, settled: o.settled}
	if c.settled == nil {
		c.settled = func(ctx context.Context, since time.Time) { c.rest(ctx, min(settle, time.Until(since.Add(settle)))) }
	}
	if o.Live != nil {
		if c.watch, err = newWatch(dir); err != nil {
			c.watch = nil // there are too many: it is looked at each second
		}
	}
	err = c.run(ctx, o)
	if errors.Is(err, errEnough) {
		err = nil
	}
	return errors.Join(err, c.close())
}

// cursor goes through the files of a log.
type cursor struct {
	dir     Dir
	base    string
	files   opened // those still to be read, oldest first; the first is being read
	skip    int64  // lines of the first that are not wanted
	print   *printer
	watch   *watch
	tell    func(name string, why error) // of what is passed over; may be nil
	settled func(ctx context.Context, since time.Time)
	last    string // the stamp of the newest rotated file that was read, or was there before all that are
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
		switch follows := o.Live != nil; {
		case follows && len(c.files) == 1:
			err = c.follow(ctx, f, o.Live)
		case follows && len(c.files) == 2 && f.readable != nil: // it may have been rotated just now
			err = c.finish(ctx, f, f.changed())
		}
		if err != nil {
			return err
		}
		if c.skip > 0 {
			c.print.used, c.skip = 0, 0 // its last line has no end, and is not wanted either
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

// drain prints what is there of a file by now.
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

// follow prints what comes to a file until its successor is there, which is then opened, or the container can write no more.
func (c *cursor) follow(ctx context.Context, f *part, live func(context.Context) bool) error {
	quiet := time.Now() // since when nothing has come, or since it was asked
	for {
		c.await(ctx, time.Until(quiet.Add(liveEvery)))
		// Other runs may write to the folder all the time: what happens there says nothing of this one.
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

// finish prints what still comes to a rotated file, which was the same since then, until nothing does.
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

// await waits for something to happen in the log's folder.
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

// watch tells when something happens to the files of a folder (inotify(7)).
type watch struct {
	f     *os.File
	space []byte
}

func newWatch(dir Dir) (w *watch, err error) {
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

// wait waits for something to happen since the wait before, but no longer than most.
func (w *watch) wait(ctx context.Context, most time.Duration) {
	if w.f.SetReadDeadline(time.Now().Add(most)) != nil {
		return
	}
	stop := context.AfterFunc(ctx, func() { _ = w.f.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	_, _ = w.f.Read(w.space)
}

func (w *watch) close() error { return w.f.Close() }
