package volumes

import (
	"context"
	"time"

	"github.com/playlet-dev/playlet/actors/volumes/leftover"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// holding reports folders of volumes that are kept because the agent cannot undo them.
type holding struct {
	rootDir  string
	alone    bool // there is no API server
	looking  bool
	again    bool // look once more when the look in progress ends
	at       time.Time
	found    []messages.HeldFolder
	reported bool   // a folder was reported in this life of the actor
	failed   string // why not all could be read
}

type heldFound struct {
	folders []messages.HeldFolder
	err     error
}

const (
	// heldEvery is how often the disk is read while nothing is known to have changed.
	heldEvery   = 5 * time.Minute
	heldTimeout = time.Minute
)

// look reads the disk if that is due or something has changed, and otherwise sends the last result again.
func (h *holding) look(ctx supervisors.Context, changed bool) {
	if !changed && !h.at.IsZero() && ctx.Now().Before(h.at.Add(heldEvery)) {
		h.report(ctx)
		return
	}
	if h.again = h.looking; h.looking {
		return
	}
	h.looking, h.at = true, ctx.Now()
	rootDir, alone := h.rootDir, h.alone
	ctx.Do(supervisors.Work{Name: "FindHeldFolders", Timeout: heldTimeout, Run: func(context.Context) any {
		folders, err := leftover.Find(rootDir, alone)
		return heldFound{folders, err}
	}})
}

func (h *holding) took(ctx supervisors.Context, m heldFound) {
	h.looking, h.found = false, m.folders
	text := ""
	if m.err != nil {
		text = messages.OneLine(m.err)
	}
	if text != h.failed && text != "" {
		ctx.Log().Warn("not all folders of volumes can be read", "error", text)
	}
	h.failed = text
	h.report(ctx)
	if h.again {
		h.look(ctx, true)
	}
}

// report sends the folders; without one there is nothing to send, unless one was reported.
func (h *holding) report(ctx supervisors.Context) {
	if h.reported = h.reported || len(h.found) > 0; h.reported {
		ctx.Tell(messages.Pods, messages.FoldersHeld{Folders: h.found})
	}
}
