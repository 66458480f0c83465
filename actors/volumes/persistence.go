package volumes

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/volumes/persistent"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// persistence is the part of the actor that looks after persistent volumes: it has unstaged what no pod has any more, tells
// registration which volumes are in use and which drivers there are, and has pods look again that wait for one of both.
type persistence struct {
	storage          *persistent.Storage // nil without an API server
	staged           persistent.Unstager // as well
	listing, relists bool
	awaiting         bool   // news of drivers
	unread           string // why not all that is in use can be read
}

type (
	driversChanged struct{}
	inUseListed    struct {
		names []v1.UniqueVolumeName
		err   error
	}
)

// driversTimeout is after how long drivers are looked at anew where none changes.
const driversTimeout = 10 * time.Minute

// beginStorage tells registration all there is.
func (a *actor) beginStorage(ctx supervisors.Context) {
	if a.staged != nil {
		a.tellDrivers(ctx)
		a.listInUse(ctx)
	}
}

// receiveStorage takes what is about persistent volumes, and says whether it was.
func (a *actor) receiveStorage(ctx supervisors.Context, msg any) bool {
	switch m := msg.(type) {
	case driversChanged:
		a.awaiting = false
		a.tellDrivers(ctx)
		a.lookAgain(ctx)
	case inUseListed:
		a.onInUse(ctx, m)
	case messages.ServiceStarted: // registration, which knows nothing then
		a.beginStorage(ctx)
	case messages.NodeObserved:
		a.nodeObserved(ctx, m.Node)
	default:
		return a.staged != nil && a.staged.Receive(ctx, msg)
	}
	return true
}

// tellDrivers tells registration which drivers there are.
func (a *actor) tellDrivers(ctx supervisors.Context) {
	drivers, gone, changed := a.storage.Drivers.All()
	observed := messages.CSIDriversObserved{Gone: gone}
	for _, d := range drivers {
		observed.Drivers = append(observed.Drivers, messages.CSIDriver{
			Name: d.Name, NodeID: d.NodeID, MaxVolumes: d.MaxVolumes, Topology: d.Topology,
		})
	}
	ctx.Tell(messages.Registration, observed)
	if a.awaiting {
		return
	}
	a.awaiting = true
	ctx.Do(supervisors.Work{Name: "AwaitDrivers", Timeout: driversTimeout, Run: func(ctx context.Context) any {
		select {
		case <-changed:
		case <-ctx.Done():
		}
		supervisors.Awaited(ctx)
		return driversChanged{}
	}})
}

// listInUse reads the disk, one reading at a time.
func (a *actor) listInUse(ctx supervisors.Context) {
	if a.listing {
		a.relists = true
		return
	}
	a.listing, a.relists = true, false
	s := a.storage
	ctx.Do(supervisors.Work{Name: "ListVolumesInUse", Timeout: mountTimeout, Run: func(ctx context.Context) any {
		names, err := s.InUse(ctx)
		return inUseListed{names, err}
	}})
}

func (a *actor) onInUse(ctx supervisors.Context, m inUseListed) {
	a.listing = false
	text := ""
	if m.err != nil {
		text = messages.OneLine(m.err)
	}
	if text != a.unread && text != "" {
		ctx.Log().Warn("not all volumes in use can be read; volumesInUse is not shortened", "error", text)
	}
	if a.unread = text; m.names != nil {
		ctx.Tell(messages.Registration, messages.VolumesInUse{Names: m.names})
	}
	if a.relists {
		a.listInUse(ctx)
	}
}

func (a *actor) sweepStorage(ctx supervisors.Context) {
	if a.staged != nil {
		a.staged.Sweep(ctx, nil, true)
		a.beginStorage(ctx)
	}
}

// storageReported follows up what came of a volume, or of some pod's; the news may be of another's.
func (a *actor) storageReported(ctx supervisors.Context) {
	touched, released := a.storage.TakeNews()
	if touched {
		a.listInUse(ctx)
	}
	if released {
		a.staged.Sweep(ctx, nil, true)
		a.lookAgain(ctx)
	}
}

// nodeObserved stores the Node and retries mounts that may no longer wait for an attachment.
func (a *actor) nodeObserved(ctx supervisors.Context, node *v1.Node) {
	if a.storage == nil || node == nil {
		return
	}
	a.storage.Observe(node)
	a.lookAgain(ctx)
}

// lookAgain retries the mounts that may no longer have to wait.
func (a *actor) lookAgain(ctx supervisors.Context) {
	var uids []string
	a.volumes.Each(func(r report) {
		if r.Actual.mayGoOn() {
			uids = append(uids, r.Key)
		}
	})
	a.volumes.Touch(ctx, uids...)
}
