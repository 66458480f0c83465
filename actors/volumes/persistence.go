package volumes

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/volumes/persistent"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// persistence is the part of the actor for persistent volumes. It unstages volumes that no pod has any more, reports the
// volumes in use and the drivers to registration, and retries pods that wait for a change of either.
type persistence struct {
	storage          *persistent.Storage // nil without an API server
	staged           persistent.Unstager // nil without an API server
	listing, relists bool
	awaiting         bool   // a wait for changed drivers is in progress
	unread           string // the last error of listing the volumes in use
	reads            driverReads
}

type (
	driversChanged struct{}
	inUseListed    struct {
		names []v1.UniqueVolumeName
		err   error
	}
)

// driversTimeout is how long to wait for a change of drivers. After that they are reported again.
const driversTimeout = 10 * time.Minute

// beginStorage sends all drivers and volumes in use to registration.
func (a *actor) beginStorage(ctx supervisors.Context) {
	if a.staged != nil {
		a.tellDrivers(ctx)
		a.listInUse(ctx)
	}
}

// receiveStorage handles messages about persistent volumes, and reports whether msg is one.
func (a *actor) receiveStorage(ctx supervisors.Context, msg any) bool {
	switch m := msg.(type) {
	case driversChanged:
		a.awaiting = false
		a.tellDrivers(ctx)
		a.lookAgain(ctx)
	case limitDue:
		a.reads.timer = nil
		a.readLimits(ctx)
	case limitRead:
		a.onLimitRead(ctx, m)
	case inUseListed:
		a.onInUse(ctx, m)
	case messages.ServiceStarted: // registration, which starts without state
		a.beginStorage(ctx)
	case messages.NodeObserved:
		a.nodeObserved(ctx, m.Node)
	default:
		return a.staged != nil && a.staged.Receive(ctx, msg)
	}
	return true
}

// tellDrivers sends the drivers to registration, and waits for the next change of drivers.
func (a *actor) tellDrivers(ctx supervisors.Context) {
	drivers, gone, changed := a.storage.Drivers.All()
	observed := messages.CSIDriversObserved{Gone: gone}
	for _, d := range drivers {
		observed.Drivers = append(observed.Drivers, messages.CSIDriver{
			Name: d.Name, NodeID: d.NodeID, MaxVolumes: d.MaxVolumes, Topology: d.Topology,
		})
	}
	ctx.Tell(messages.Registration, observed)
	a.readLimits(ctx)
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

// listInUse lists the volumes in use from the disk. One list is in progress at a time.
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
		ctx.Log().Warn("some volumes in use cannot be read; nothing is removed from volumesInUse", "error", text)
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

// unstaged handles the result of an attempt to unstage a volume.
func (a *actor) unstaged(ctx supervisors.Context, folder string, err error) {
	if a.held.unstaged(ctx.Now(), folder, err) {
		a.held.look(ctx, true)
	}
	a.storageReported(ctx)
}

// storageReported handles changes of persistent volumes after a report. The changes may be of another volume or pod.
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

// lookAgain retries mounts that may no longer have to wait.
func (a *actor) lookAgain(ctx supervisors.Context) {
	var uids []string
	a.volumes.Each(func(r report) {
		if r.Actual.mayGoOn() {
			uids = append(uids, r.Key)
		}
	})
	a.volumes.Touch(ctx, uids...)
}
