// Package statefile keeps the checkpoint of a kubelet's resource manager: one value in the kubelet's format, written when it
// changes, and read once, when the process starts. An agent refuses to start with the checkpoint of another policy or machine, as
// a kubelet does: running containers depend on its content. Unlike a kubelet, it replaces a file of another machine while no
// container runs: after a boot, a NUMA node may have a little more or less memory (kubernetes/kubernetes#131253).
package statefile

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"time"

	"github.com/playlet-dev/playlet/actors/internal/linux/atomicfile"
	"github.com/playlet-dev/playlet/actors/internal/overdue"
)

const (
	// writeTimeout is how long a write is awaited.
	writeTimeout = 15 * time.Second
	// maxFile is the largest size of a checkpoint in bytes.
	maxFile = 16 << 20
)

// Format describes a checkpoint.
type Format[T any] struct {
	Path   string
	About  string // the content, for logs: "exclusive CPUs"
	Remedy string // the way out of an Error
	Encode func(T) ([]byte, error)
	Decode func([]byte) (T, error)
	// Fits returns why the agent cannot continue with the content. With a *StaleError the file is set aside and replaced.
	Fits func(T) error
	// Binding is true if containers depend on the content. Otherwise an unreadable file is set aside and replaced.
	Binding bool
	Log     *slog.Logger
}

// File is a checkpoint. It is safe for concurrent use. Only Flush and Close wait for the disk.
type File[T any] struct {
	format  Format[T]
	writing *overdue.Writer[T]
	writes  sync.WaitGroup
}

// Error is the refusal to start with a checkpoint.
type Error struct {
	Path   string
	Err    error
	Remedy string
}

func (e *Error) Error() string {
	return fmt.Sprintf("cannot continue with %s: %v: %s", e.Path, e.Err, e.Remedy)
}

func (e *Error) Unwrap() error { return e.Err }

// StaleError is returned for the content of another machine on which no container depends any more.
type StaleError struct{ Err error }

func (e *StaleError) Error() string {
	return fmt.Sprintf("it is of another machine, and no container runs: %v", e.Err)
}

func (e *StaleError) Unwrap() error { return e.Err }

// Open reads the checkpoint and returns its content. Without a file it writes the initial content. The error is an *Error.
func Open[T any](format Format[T], initial T) (*File[T], T, error) {
	f := &File[T]{format: format, writing: overdue.NewWriter("the checkpoint of "+format.About, writeTimeout, func(v T) error {
		text, err := format.Encode(v)
		if err != nil { // a bug: every value can be encoded
			return err
		}
		return atomicfile.WriteFile(format.Path, text, 0o600)
	})}
	load := atomicfile.LoadText
	if format.Binding {
		load = loadInPlace
	}
	content, err := format.read(load)
	if _, aside := errors.AsType[*atomicfile.UnreadableError](err); aside {
		format.Log.Warn("the checkpoint of "+format.About+" cannot be read, and is replaced", "error", err)
		err = fs.ErrNotExist
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f.Set(initial)
		f.warn(f.writing.Flush())
		return f, initial, nil
	case err != nil && !format.Binding:
		format.Log.Warn("the checkpoint of "+format.About+" cannot be read", "error", err)
		return f, initial, nil
	case err == nil:
		err = format.Fits(content)
	}
	if stale, is := errors.AsType[*StaleError](err); is {
		aside := atomicfile.LoadText(format.Path, func([]byte) error { return stale })
		format.Log.Warn("the checkpoint of "+format.About+" is replaced", "error", aside)
		f.Set(initial)
		f.warn(f.writing.Flush())
		return f, initial, nil
	}
	if err != nil {
		return nil, initial, &Error{format.Path, err, format.Remedy}
	}
	return f, content, nil
}

// Check reports in advance, and changes nothing. refused is the error of Open; replaced is why Open would replace the checkpoint,
// or could not read it, on which no container depends. An absent checkpoint is neither.
func Check[T any](format Format[T]) (refused, replaced error) {
	content, err := format.read(loadInPlace)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil && !format.Binding:
		return nil, err
	case err == nil:
		err = format.Fits(content)
	}
	if _, stale := errors.AsType[*StaleError](err); stale {
		return nil, err
	}
	if err != nil {
		return &Error{format.Path, err, format.Remedy}, nil
	}
	return nil, nil
}

func (f Format[T]) read(load func(path string, decode func([]byte) error) error) (content T, err error) {
	err = load(f.Path, func(text []byte) (err error) {
		content, err = f.Decode(text)
		return err
	})
	return content, err
}

// loadInPlace is atomicfile.LoadText without setting an unreadable file aside.
func loadInPlace(path string, decode func([]byte) error) error {
	text, err := atomicfile.ReadFile(path, maxFile)
	if err != nil {
		return err
	}
	return decode(text)
}

// Set schedules the content for the next write.
func (f *File[T]) Set(content T) { f.writing.Set(content) }

// Flush writes the newest content.
func (f *File[T]) Flush() error { return f.writing.Flush() }

// FlushLater writes the newest content without waiting for the disk. A failure is logged.
func (f *File[T]) FlushLater() {
	f.writes.Go(func() { f.warn(f.writing.Flush()) })
}

func (f *File[T]) warn(err error) {
	if err != nil {
		f.format.Log.Warn("the checkpoint of "+f.format.About+" cannot be written", "error", err)
	}
}

// Close waits for writes in progress.
func (f *File[T]) Close() { f.writes.Wait() }
