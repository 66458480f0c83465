package images

import (
	"maps"
	"time"

	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// unreadPatience is how long a need waits for pull secrets that have not been read yet: without them a pull would fail that
// succeeds a moment later.
const unreadTimeout = time.Second

// held is a need whose pull secrets have not been read yet.
type held struct {
	ask  messages.PullImage
	late bool // it waits no longer
}

// heldLong is the end of the wait for a need's pull secrets.
type heldLong struct{ key messages.ImageKey }

// PodUID implements messages.Subject.
func (h heldLong) PodUID() string { return h.key.UID }

// hold keeps the need for a while, and says whether it does.
func (a *images) hold(ctx supervisors.Context, m messages.PullImage) bool {
	h := a.held[m.Key]
	if h == nil {
		h = &held{}
		a.held[m.Key] = h
		ctx.After(unreadTimeout, heldLong{m.Key})
	}
	h.ask = m
	return !h.late
}

// askHeld looks whether those can be pulled that wait.
func (a *images) askHeld(ctx supervisors.Context) {
	for _, h := range maps.Clone(a.held) {
		a.asked(ctx, h.ask)
	}
}

func (a *images) release(ctx supervisors.Context, m heldLong) {
	if h := a.held[m.key]; h != nil {
		h.late = true
		a.asked(ctx, h.ask)
	}
}

// drop forgets what a pod waits for.
func (a *images) drop(uid string) {
	delete(a.unfound, uid)
	a.gc.forget(uid)
	maps.DeleteFunc(a.held, func(k messages.ImageKey, _ *held) bool { return k.UID == uid })
}
