package base

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/playlet-dev/playlet/actors/internal/linux/atomicfile"
	"github.com/playlet-dev/playlet/supervisors"
)

const (
	// version is that of the shape of every source's checkpoint.
	version = 1
	// SaveDelay gathers the changes of a burst into one checkpoint, written when the burst has been sent.
	SaveDelay = 200 * time.Millisecond
	// DiskTimeout bounds one reading or writing of a checkpoint.
	DiskTimeout = 30 * time.Second
)

// Checkpoint keeps the newest value of a source on the disk, one write at a time. It belongs to the source's actor, which hands
// it each message that it does not know itself. The zero value keeps nothing.
type Checkpoint struct {
	dir     string
	what    string
	unsaved any // nil when all is on the disk, or on its way there
	planned bool
	saving  bool
}

type (
	saveDue struct{}
	saved   struct {
		value any
		err   error
	}
)

// NewCheckpoint makes the checkpoint of a source with a folder for itself alone, which is made where it is missing; without one
// nothing is kept. what is kept is named in the log.
func NewCheckpoint(dir, what string) Checkpoint { return Checkpoint{dir: dir, what: what} }

// Set has a value kept, which nobody changes any more.
func (c *Checkpoint) Set(ctx supervisors.Context, value any) {
	if c.dir != "" {
		c.unsaved = value
		c.plan(ctx)
	}
}

// Retry tries again to write what could not be written. Sources call it at each check.
func (c *Checkpoint) Retry(ctx supervisors.Context) { c.plan(ctx) }

// Receive takes a message of the checkpoint's own, and says whether it was one.
func (c *Checkpoint) Receive(ctx supervisors.Context, msg any) bool {
	switch m := msg.(type) {
	case saveDue:
		c.planned = false
		c.save(ctx)
	case saved:
		c.saving = false
		if m.err == nil {
			c.plan(ctx)
			break
		}
		ctx.Log().Error(c.what+" cannot be kept on disk; they are lost if the agent stops now", "error", m.err)
		if c.unsaved == nil {
			c.unsaved = m.value // the next check tries again
		}
	default:
		return false
	}
	return true
}

func (c *Checkpoint) plan(ctx supervisors.Context) {
	if c.unsaved != nil && !c.planned && !c.saving {
		c.planned = true
		ctx.After(SaveDelay, saveDue{})
	}
}

func (c *Checkpoint) save(ctx supervisors.Context) {
	if c.unsaved == nil || c.saving {
		return
	}
	dir, value := c.dir, c.unsaved
	c.unsaved, c.saving = nil, true
	ctx.Do(supervisors.Work{Name: "SaveLastGood", Timeout: DiskTimeout, Run: func(context.Context) any {
		return saved{value, Save(dir, value)}
	}})
}

// Path is where a source with that folder keeps its checkpoint.
func Path(dir string) string { return filepath.Join(dir, "last-good.json") }

// Save keeps a value in a source's folder. Pods have secrets in their environment: it is for root alone.
func Save(dir string, value any) error {
	if err := atomicfile.MakeDir(dir); err != nil {
		return err
	}
	return atomicfile.Save(Path(dir), version, value)
}

// Load reads what is kept in a source's folder into a value, a pointer, and says whether there was something. An error is no
// reason not to go on.
func Load(dir string, value any) (found bool, err error) {
	if dir == "" {
		return false, nil
	}
	err = atomicfile.Load(Path(dir), version, value)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
