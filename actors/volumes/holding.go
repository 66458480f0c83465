package volumes

import (
	"cmp"
	"context"
	"path/filepath"
	"slices"
	"time"

	"github.com/playlet-dev/playlet/actors/volumes/kinds"
	"github.com/playlet-dev/playlet/actors/volumes/leftover"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// heldFolders reports folders that are kept because the agent cannot undo them: folders of volumes, by reading the disk, and
// folders of pods, by the errors of their removals.
type heldFolders struct {
	rootDir string
	alone   bool // there is no API server
	looking bool
	again   bool // look again when the look in progress ends
	at      time.Time
	found   []messages.HeldFolder
	remains map[string]remains  // by UID; an entry stays until the removal succeeds
	staged  map[string]*remains // the failures to unstage volumes that no pod has, by folder
	failed  string              // the error of an incomplete look
}

// remains is the state of a failed removal.
type remains struct {
	since time.Time // of the first of the consecutive failures
	text  string    // the last error; empty while the removal may only be slow
}

type heldFound struct {
	folders []messages.HeldFolder
	err     error
}

const (
	// heldEvery is the interval between reads of the disk if no change is known.
	heldEvery   = 5 * time.Minute
	heldTimeout = time.Minute
	// maxHeldError limits the recorded error of each removal, in bytes.
	maxHeldError = 1024
)

// removal records the result of a pod's removal and reports whether the published error changed. A removal may outlast the
// actor's wait, e.g. of a large emptyDir. It is then reported only if no removal has ended within kinds.OperationTimeout.
func (h *heldFolders) removal(now time.Time, r report) (changed bool) {
	was := h.remains[r.Key]
	if r.Desired != nil || r.Err == nil {
		delete(h.remains, r.Key)
		return was.text != ""
	}
	is := was
	if was.since.IsZero() {
		is.since = now
	}
	if isEnded(r.Err) || is.text == "" && now.Sub(is.since) >= kinds.OperationTimeout {
		is.text = messages.Shorten(messages.OneLine(r.Err), maxHeldError)
	}
	h.remains[r.Key] = is
	return is.text != was.text
}

// unstaged records the result of an attempt to unstage the volume of a folder, and reports whether the published error changed.
// The first of consecutive failures is not published: a driver that is being replaced fails once.
func (h *heldFolders) unstaged(now time.Time, folder string, err error) (changed bool) {
	was := h.staged[folder]
	switch {
	case err == nil:
		delete(h.staged, folder)
		return was != nil && was.text != ""
	case was == nil:
		h.staged[folder] = &remains{since: now}
		return false
	}
	text := messages.Shorten(messages.OneLine(err), maxHeldError)
	changed = was.text != text
	was.text = text
	return changed
}

// look reads the disk if a read is due or something has changed. Otherwise it sends the last result again.
func (h *heldFolders) look(ctx supervisors.Context, changed bool) {
	switch {
	case h.looking && ctx.Now().Before(h.at.Add(2*heldTimeout)): // the result may be lost
		h.again = h.again || changed
		return
	case !changed && !h.at.IsZero() && ctx.Now().Before(h.at.Add(heldEvery)):
		h.report(ctx)
		return
	}
	h.again = false
	h.looking, h.at = true, ctx.Now()
	rootDir, alone := h.rootDir, h.alone
	ctx.Do(supervisors.Work{Name: "FindHeldFolders", Timeout: heldTimeout, Run: func(context.Context) any {
		folders, err := leftover.Find(rootDir, alone)
		return heldFound{folders, err}
	}})
}

func (h *heldFolders) took(ctx supervisors.Context, m heldFound) {
	h.looking, h.found = false, m.folders
	text := ""
	if m.err != nil {
		text = messages.OneLine(m.err)
	}
	if text != h.failed && text != "" {
		ctx.Log().Warn("some volume folders cannot be read", "error", text)
	}
	h.failed = text
	h.report(ctx)
	if h.again {
		h.look(ctx, true)
	}
}

// report sends all folders. It also sends an empty list, because an earlier life of the actor may have reported some.
func (h *heldFolders) report(ctx supervisors.Context) {
	all := slices.Clone(h.found)
	for uid, r := range h.remains {
		if r.text != "" {
			all = append(all, messages.HeldFolder{Code: messages.HeldRemains, UID: uid,
				Path: filepath.Join(h.rootDir, kinds.PodsFolder, uid), Error: r.text})
		}
	}
	for folder, r := range h.staged {
		if r.text != "" {
			all = append(all, messages.HeldFolder{Code: messages.HeldStaged, Path: folder, Error: r.text})
		}
	}
	slices.SortFunc(all, func(a, b messages.HeldFolder) int { return cmp.Compare(a.Path, b.Path) })
	ctx.Tell(messages.Pods, messages.FoldersHeld{Folders: all})
}
