package runtime

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"time"

	"github.com/playlet-dev/playlet/actors/internal/linux/atomicfile"
	"github.com/playlet-dev/playlet/cni"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/supervisors"
)

// A runtime that has lost its state knows nothing of sandboxes that it had attached to networks, and their addresses stay
// reserved for ever. Nothing on the disk tells whose an attachment is: another runtime, and who uses the network's configuration
// by hand, leave the same files, with the same names of pods in them. So only those of sandboxes are given back that this agent
// has seen, which is kept on disk; that two audits in a row have not seen any more, which is no word of a runtime that lists
// nothing; of which the runtime says, when it is asked by ID, that it does not know them; and of which no process is left.
//
// An address that is reserved for somebody of whom libcni keeps nothing is left by an ADD that was cut off, with its runtime or
// its machine: whoever completed one has a record of it. No agent may ever have seen its sandbox, so it is given back when each
// audit has found it so for longer than any ADD is given.

// leases is what is known of the sandboxes that were seen.
type leases struct {
	seen map[string]absence // by ID; nil: not read from the disk yet
	// unrecorded is since when each audit has found addresses of these of whom libcni keeps nothing.
	unrecorded map[string]time.Time
	saved      map[string]bool // as on disk
	working    bool
	lacks      string // why some could not be given back, as it was logged
}

// absence is how often, one after another, and since when an audit has not seen a sandbox.
type absence struct {
	audits int
	since  time.Time
}

// leaseGrace is how long a sandbox has to be absent.
const leaseGrace = 2 * time.Minute

// unrecordedGrace is longer than the time that runtimes are given for a sandbox, 15 minutes with CRI-O: they neither list nor
// know one that is being attached.
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
		over       []string        // sandboxes of which nothing is attached any more
		leases     int
		err        error
	}
)

// countSandboxes takes the sandboxes of an audit that has seen all of them.
func (a *actor) countSandboxes(ctx supervisors.Context, m audited) {
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
		ctx.Log().Warn("the record of sandboxes cannot be read: leases of those that the runtime lost stay",
			"error", m.err)
	}
}

// freeLeases keeps on disk which sandboxes were seen, and gives back what is left of those that are due, and of those who have
// been unrecorded for long and still are.
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
	attached.Networks, _ = cni.Load(places) // a network that is not ready is told of elsewhere
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

var errKnown = errors.New("the runtime knows the sandbox, and does not list it")

func (a *actor) freeLease(ctx context.Context, attached cni.Attachments, id string) (leases int, err error) {
	if list, err := attached.Of(id); err != nil || len(list) == 0 {
		return 0, err // as a rule: it was removed in good order
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
