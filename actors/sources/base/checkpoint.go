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
	// version is the format version of every source's checkpoint.
	version = 1
	// SaveDelay combines the changes of a burst into one checkpoint, written after the burst was sent.
	SaveDelay = 200 * time.Millisecond
	// DiskTimeout bounds one read or write of a checkpoint.
	DiskTimeout = 30 * time.Second
)

// Checkpoint keeps a source's newest value on disk, one write at a time. It belongs to the source's actor, which passes it
// each message that it does not handle itself. The zero value keeps nothing.
type Checkpoint struct {
	dir     string
	what    string
	unsaved any // nil when the newest value is on disk or being written
	planned bool
	saving  bool
}

type (
	saveDue         struct{}
	checkpointSaved struct {
		value any
		err   error
	}
)

// NewCheckpoint returns the checkpoint of a source. The folder belongs to it alone, and is created if missing. An empty
// folder keeps nothing. The second argument names the value in the log.
func NewCheckpoint(dir, what string) Checkpoint { return Checkpoint{dir: dir, what: what} }

// Set saves a value, which must not change afterwards.
func (c *Checkpoint) Set(ctx supervisors.Context, value any) {
	if c.dir != "" {
		c.unsaved = value
		c.plan(ctx)
	}
}

// Retry repeats a failed write. Sources call it at each check.
func (c *Checkpoint) Retry(ctx supervisors.Context) { c.plan(ctx) }

// Receive handles a message of the checkpoint, and reports whether it was one.
func (c *Checkpoint) Receive(ctx supervisors.Context, msg any) bool {
	switch m := msg.(type) {
	case saveDue:
		c.planned = false
		c.save(ctx)
	case checkpointSaved:
		c.saving = false
		if m.err == nil {
			c.plan(ctx)
			break
		}
		ctx.Log().Error(c.what+" cannot be saved to disk; they are lost if the agent stops now", "error", m.err)
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
		return checkpointSaved{value, Save(dir, value)}
	}})
}

// Path returns the path of the checkpoint in a source's folder.
func Path(dir string) string { return filepath.Join(dir, "last-good.json") }

// Save writes a value to a source's folder. The environment of pods has secrets, so that only root may read it.
func Save(dir string, value any) error {
	if err := atomicfile.MakeDir(dir); err != nil {
		return err
	}
	return atomicfile.Save(Path(dir), version, value)
}

// Load reads the checkpoint in a source's folder into value, a pointer, and reports whether there was one. The caller can
// continue after an error.
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
