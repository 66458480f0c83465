package runtime

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/actors/internal/linux/atomicfile"
	"github.com/playlet-dev/playlet/cni"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/supervisors"
)

// A runtime that has lost its state does not know its former sandboxes, and their addresses stay reserved for ever. Files on the
// disk do not identify the owner of an attachment: another runtime, or a person who uses the network's configuration, leaves the
// same files, with the same pod names. A sandbox's attachments are therefore released only under four conditions. This agent has
// seen the sandbox, which is recorded on disk. Two consecutive audits have not seen it; an empty list of a runtime does not
// count. The runtime does not know its ID. No process of it is left.
//
// A reserved address without a record of libcni is left by an interrupted ADD, as when the runtime or the machine crashed: every
// completed ADD has a record. Perhaps no agent has ever seen its sandbox. It is therefore released when each audit has found it
// so for longer than any ADD may take.

// leases is the state of the sandboxes seen so far.
type leases struct {
	seen map[string]absence // by ID; nil: not read from the disk yet
	// unrecorded maps containers with addresses but no record of libcni to the time since when each audit has found them so.
	unrecorded map[string]time.Time
	saved      map[string]bool // as on disk
	working    bool
	lacks      string // the last logged reason why some could not be released
}

// absence is the number of consecutive audits without a sandbox, and their start.
type absence struct {
	audits int
	since  time.Time
}

// leaseGrace is the least time of absence before a release.
const leaseGrace = 2 * time.Minute

// unrecordedGrace exceeds the runtimes' own deadline for a sandbox, 15 minutes with CRI-O. They neither list nor know a sandbox
// during ADD.
const unrecordedGrace = 20 * time.Minute

const sandboxesVersion = 1

type (
	sandboxesLoaded struct {
		ids []string
		err error
	}
	leasesEnded struct {
		saved      map[string]bool // nil: not written
		unrecorded []string        // see leases
		over       []string        // sandboxes without remaining attachments
		leases     int
		err        error
	}
)

// countSandboxes updates the absences from an audit that covers all sandboxes.
func (a *actor) countSandboxes(ctx supervisors.Context, m auditResult) {
	l := &a.leases
	if a.opts.SandboxesFile == "" || m.only != nil || len(m.pods) == 0 || l.working {
		return
	}
	if l.working = true; l.seen == nil {
		ctx.Do(supervisors.Work{Name: "read which sandboxes were seen", Timeout: readTimeout, Run: func(context.Context) any {
			var ids []string
			err := atomicfile.Load(a.opts.SandboxesFile, sandboxesVersion, &ids)
			return sandboxesLoaded{ids, err}
		}})
		return
	}
	now := map[string]bool{}
	for _, pod := range m.pods {
		for _, s := range pod.Sandboxes {
			now[s.GetId()], l.seen[s.GetId()] = true, absence{}
		}
	}
	var due []string
	for id, was := range l.seen {
		switch {
		case now[id] || len(now) == 0:
		case was.audits == 0:
			l.seen[id] = absence{1, m.readAt}
		default:
			was.audits++
			if l.seen[id] = was; m.readAt.Sub(was.since) >= leaseGrace {
				due = append(due, id)
			}
		}
	}
	slices.Sort(due)
	var unrecorded []string
	for id, since := range l.unrecorded {
		if m.readAt.Sub(since) >= unrecordedGrace && !now[id] {
			unrecorded = append(unrecorded, id)
		}
	}
	all := map[string]bool{}
	for id := range l.seen {
		all[id] = true
	}
	changed := !maps.Equal(all, l.saved)
	ctx.Do(supervisors.Work{
		Name:    "free leases of sandboxes that are gone",
		Timeout: time.Duration(len(due)+len(unrecorded)+1) * removeTimeout, Routine: true,
		Run: func(ctx context.Context) any { return a.freeLeases(ctx, all, changed, due, unrecorded) },
	})
}

func (a *actor) loadedSandboxes(ctx supervisors.Context, m sandboxesLoaded) {
	a.leases.working, a.leases.seen, a.leases.saved = false, map[string]absence{}, map[string]bool{}
	for _, id := range m.ids {
		a.leases.seen[id], a.leases.saved[id] = absence{}, true
	}
	if m.err != nil && !errors.Is(m.err, fs.ErrNotExist) {
		ctx.Log().Warn("the record of sandboxes cannot be read; network addresses of lost sandboxes stay allocated",
			"error", m.err)
	}
}

// freeLeases saves the seen sandboxes to disk. It releases the attachments of those that are due, and of those that were
// unrecorded for long and still are.
func (a *actor) freeLeases(ctx context.Context, all map[string]bool, changed bool, due, unrecorded []string) (out leasesEnded) {
	if changed {
		out.err = atomicfile.SaveVolatile(a.opts.SandboxesFile, sandboxesVersion, slices.Sorted(maps.Keys(all)))
	}
	if out.err == nil {
		out.saved = all
	}
	status, err := a.opts.CRI.Status(ctx, true)
	if err != nil {
		if len(due) > 0 {
			out.err = errors.Join(out.err, err)
		}
		return out
	}
	places, ok := cni.PlacesOf(status.GetInfo())
	if !ok {
		places = a.opts.Network
	}
	attached := cni.Attachments{BinDirs: places.BinDirs, CacheDir: a.opts.CNICache, Proc: "/proc"}
	attached.Networks, _ = cni.Load(places) // a network that is not ready is reported elsewhere
	if out.unrecorded, err = attached.Unrecorded(); err != nil {
		out.err = errors.Join(out.err, err)
	}
	for _, id := range slices.Sorted(slices.Values(unrecorded)) {
		if slices.Contains(out.unrecorded, id) && !slices.Contains(due, id) {
			due = append(due, id)
		}
	}
	for _, id := range due {
		leases, err := a.freeLease(ctx, attached, id)
		if out.leases += leases; err == nil {
			out.over = append(out.over, id)
		} else if !errors.Is(err, cni.ErrInUse) {
			out.err = errors.Join(out.err, err)
		}
	}
	return out
}

// recordsDropped is the result of dropRecords.
type recordsDropped struct {
	names []string
	err   error
}

// dropRecords removes the damaged records of attachments of sandboxes that have ended, so that the runtime can stop them.
func (a *actor) dropRecords(ctx supervisors.Context, m auditResult) {
	if a.opts.CNICache == "" || m.only != nil {
		return
	}
	var ended []string
	for _, pod := range m.pods {
		for _, s := range pod.Sandboxes {
			if s.GetState() == runtimeapi.PodSandboxState_SANDBOX_NOTREADY {
				ended = append(ended, s.GetId())
			}
		}
	}
	if len(ended) == 0 {
		return
	}
	cache := a.opts.CNICache
	ctx.Do(supervisors.Work{Name: "drop damaged records of attachments", Timeout: readTimeout, Routine: true,
		Run: func(context.Context) any {
			names, err := cni.Attachments{CacheDir: cache}.DropDamaged(ended)
			return recordsDropped{names, err}
		}})
}

func (a *actor) onRecordsDropped(ctx supervisors.Context, m recordsDropped) {
	if len(m.names) > 0 {
		ctx.Log().Warn("removed damaged records of network attachments that kept the runtime from stopping their sandboxes",
			"folder", a.opts.CNICache, "records", m.names)
	}
	if m.err != nil {
		ctx.Log().Warn("damaged records of network attachments cannot be removed", "error", m.err)
	}
}

var errKnown = errors.New("the runtime knows the sandbox, and does not list it")

func (a *actor) freeLease(ctx context.Context, attached cni.Attachments, id string) (leases int, err error) {
	if list, err := attached.Of(id); err != nil || len(list) == 0 {
		return 0, err // the usual case: it was removed properly
	}
	if _, err := a.opts.CRI.PodSandboxStatus(ctx, id, false); err == nil {
		return 0, errKnown
	} else if !cri.IsNotFound(err) {
		return 0, err
	}
	_, err = a.opts.Operations.Do(ctx, "leases/"+id, removeTimeout, func(ctx context.Context) (any, error) {
		leases, err = attached.Release(ctx, id)
		return nil, err
	})
	return leases, err
}

func (a *actor) leasesFreed(ctx supervisors.Context, m leasesEnded) {
	l := &a.leases
	if l.working = false; m.saved != nil {
		l.saved = m.saved
	}
	for _, id := range m.over {
		delete(l.seen, id)
	}
	still := map[string]time.Time{}
	for _, id := range m.unrecorded {
		if still[id] = ctx.Now(); !l.unrecorded[id].IsZero() {
			still[id] = l.unrecorded[id]
		}
	}
	l.unrecorded = still
	if m.leases > 0 {
		ctx.Log().Info("freed network addresses of sandboxes that the runtime has lost", "leases", m.leases)
	}
	lacks := ""
	if m.err != nil {
		lacks = m.err.Error()
	}
	if lacks != "" && lacks != l.lacks {
		ctx.Log().Warn("could not free all network addresses of sandboxes that the runtime has lost; will retry", "error", m.err)
	}
	l.lacks = lacks
}
