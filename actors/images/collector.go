package images

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/actors/internal/metrics"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// Collect configures the collection of unused images.
type Collect struct {
	Limits
	Store Store
	// Space measures the file system of images. It is called outside the mailbox.
	Space func(context.Context) (Space, error)
	// NodeName is the node in the Events of failures; empty: no Events are recorded.
	NodeName string
}

const (
	collectEvery  = 5 * time.Minute // the kubelet's
	retryAfter    = time.Minute     // after a survey that failed
	surveyTimeout = 2 * time.Minute
	removeTimeout = 2 * time.Minute
	leaseKept     = time.Hour // limits the effect of a lost ForgetImages
	removePrefix  = "image/remove/"
)

// errNoCapacity has the kubelet's text.
var errNoCapacity = errors.New("invalid capacity 0 on image filesystem")

// collector is the state of the collection of images.
type collector struct {
	times   map[string]imageTimes
	leases  map[messages.ImageKey]lease
	surveys bool
	current *collection // in progress
	all     bool        // the next one removes all unused images
	timer   supervisors.Timer
	failing bool // the last collection failed
	// removing are the names of the image that is being removed. settling means that removals of a predecessor are in progress;
	// only the IDs of their images are known. Needs that may refer to these images wait.
	removing map[string]bool
	settling bool
	waiting  map[messages.ImageKey]messages.PullImage
}

// lease keeps an image that was reported to a pod, until a container uses it.
type lease struct {
	ref string
	at  time.Time
}

type (
	collectDue   struct{}
	surveyResult struct {
		survey
		request *messages.RemoveImage // the request that it serves; nil for a collection
	}
	imageRemoved struct {
		finding
		err error
	}
	removalsSettled struct{}
)

// startCollecting begins the first collection at once, since the age of images counts from the first survey. It waits for the
// removals of a predecessor.
func (a *images) startCollecting(ctx supervisors.Context) {
	if a.opts.Collect == nil {
		return
	}
	if len(a.opts.Operations.InFlight(removePrefix)) > 0 {
		a.gc.settling = true
		ctx.Do(supervisors.Work{Name: "await removals", Timeout: removeTimeout + time.Minute, Run: func(ctx context.Context) any {
			_ = a.opts.Operations.Settle(ctx, removePrefix) // the only error is the deadline, which no removal exceeds
			return removalsSettled{}
		}})
		return // a list that is read now may have the image that is being removed
	}
	a.collect(ctx)
}

// collect begins a collection, unless one is in progress.
func (a *images) collect(ctx supervisors.Context) {
	if a.opts.Collect == nil || a.collecting() {
		return
	}
	if !a.podsSynced(ctx.Now()) {
		a.plan(ctx, settleLook)
		return
	}
	a.plan(ctx, collectEvery)
	a.survey(ctx, nil)
}

func (a *images) collecting() bool { return a.gc.surveys || a.gc.current != nil || a.gc.settling }

func (a *images) survey(ctx supervisors.Context, asked *messages.RemoveImage) {
	a.gc.surveys = true
	o, records, log := a.opts.Collect, a.opts.Records, ctx.Log()
	ctx.Do(supervisors.Work{Name: "survey of images", Timeout: surveyTimeout, Run: func(ctx context.Context) any {
		since := time.Now()
		s := o.survey(ctx)
		if err := s.prune(records, since); err != nil {
			log.Warn("could not remove the pull records of removed images", "error", err)
		}
		return surveyResult{s, asked}
	}})
}

func (a *images) plan(ctx supervisors.Context, after time.Duration) {
	if a.gc.timer != nil {
		a.gc.timer.Cancel()
	}
	a.gc.timer = ctx.After(after, collectDue{})
}

func (a *images) onSurveyed(ctx supervisors.Context, s surveyResult) {
	a.gc.surveys = false
	if s.request != nil {
		a.removeOne(ctx, s.survey, s.request)
		return
	}
	if !a.podsSynced(ctx.Now()) { // the pods actor has restarted in the meantime
		a.collect(ctx)
		return
	}
	all := a.gc.all
	a.gc.all, a.gc.current = false, &collection{all: all}
	if err := cmp.Or(s.err, s.spaceErr); err != nil {
		a.plan(ctx, retryAfter)
		a.collected(ctx, err)
		return
	}
	a.gc.current = decide(a.gc.times, s.survey, a.heldImages(ctx.Now()), a.opts.Collect.Limits, all, ctx.Now())
	a.gc.current.pulls = len(a.began)
	if s.space.Capacity <= 0 && !all {
		a.collected(ctx, errNoCapacity)
		return
	}
	a.removeNext(ctx)
}

// heldImages returns the images that pods are about to use: those in their specs, in their needs, and in leases.
func (a *images) heldImages(now time.Time) users {
	held := users{}
	add := func(ref string, k messages.ImageKey) {
		held.add(ref, messages.ImageUser{UID: k.UID, Container: k.Container})
	}
	for name, im := range a.machine.images {
		held.add(name) // also during a pull that has lost its needs
		for k := range im.needs {
			add(name, k)
		}
	}
	for k, h := range a.held {
		add(h.ask.Image, k)
	}
	a.ofPods(add)
	maps.DeleteFunc(a.gc.leases, func(_ messages.ImageKey, l lease) bool { return now.Sub(l.at) > leaseKept })
	for k, l := range a.gc.leases {
		add(l.ref, k)
	}
	return held
}

// lease keeps the image that is reported to a pod.
func (a *images) lease(m messages.ImagePulled, now time.Time) {
	maps.DeleteFunc(a.gc.leases, func(k messages.ImageKey, _ lease) bool { return k.SamePlace(m.Key) })
	a.gc.leases[m.Key] = lease{m.Ref, now}
	a.gc.wanted(m.Ref)
}

// wanted protects an image from the collection in progress.
func (g *collector) wanted(ref string) {
	if g.current != nil {
		g.current.held.add(ref)
	}
}

// removeNext starts the next removal, or ends the collection.
func (a *images) removeNext(ctx supervisors.Context) {
	r := a.gc.current.next()
	if r == nil {
		a.collected(ctx, nil)
		return
	}
	a.gc.removing = r.names
	ops, store := a.opts.Operations, a.opts.Collect.Store
	limit := removeTimeout + time.Minute
	ctx.Do(supervisors.Work{Name: "RemoveImage " + r.id, Timeout: limit, Run: func(ctx context.Context) any {
		_, err := cri.Run(ctx, ops, removePrefix+r.id, removeTimeout, func(ctx context.Context) (any, error) {
			return nil, store.RemoveImage(ctx, &runtimeapi.ImageSpec{Image: r.id})
		})
		return imageRemoved{*r, err}
	}})
}

func (a *images) onImageRemoved(ctx supervisors.Context, m imageRemoved) {
	a.gc.current.recordRemoval(m.finding, m.err)
	if m.err == nil {
		reason := "space"
		if m.old {
			reason = "age"
		}
		if a.gc.current.request != nil {
			reason = "asked for"
		} else {
			metrics.CollectedImages.WithLabelValues(reason).Inc()
		}
		delete(a.gc.times, m.id)
		ctx.Log().Info("removed an unused image", "image", m.id, "bytes", m.size, "reason", reason)
	}
	a.gc.removing = nil
	a.askWaiting(ctx)
	a.removeNext(ctx)
}

// collected ends a collection, and reports the freed and the lacking space.
func (a *images) collected(ctx supervisors.Context, err error) {
	c := a.gc.current
	a.gc.current = nil
	if c.request != nil {
		a.removedOne(ctx, c)
		return
	}
	lack, reason := c.shortfall(), messages.EventFreeDiskSpaceFailed
	if err != nil {
		lack, reason = err.Error(), messages.EventInvalidDiskCapacity
	}
	log := ctx.Log().With("removed", c.removed, "freedBytes", c.freed, "usagePercent", c.usage)
	switch {
	case cri.IsUnavailable(err): // the runtime actor reports it
	case lack != "":
		log.Warn("could not free enough space on the image disk", "reason", lack)
		if !c.all && (err == nil || errors.Is(err, errNoCapacity)) {
			a.nodeEvent(ctx, reason, lack)
		}
		if a.gc.failing { // like the kubelet, which tolerates the first failure after a start
			a.nodeEvent(ctx, messages.EventImageGCFailed, lack)
		}
	case c.removed > 0:
		log.Info("removed unused images")
	}
	if err == nil && lack != "" && c.tooYoung > 0 { // young images are old enough soon
		a.plan(ctx, min(collectEvery, a.opts.Collect.MinAge+time.Second))
	}
	a.gc.failing = lack != ""
	if c.all {
		if lack == "" && c.removed == 0 {
			lack = c.keptSummary()
		}
		ctx.Tell(messages.Eviction, messages.ImagesReclaimed{Freed: c.freed, Removed: c.removed, Shortfall: lack})
	}
	if a.gc.all {
		a.collect(ctx)
	}
}

func (a *images) nodeEvent(ctx supervisors.Context, reason, text string) {
	if name := a.opts.Collect.NodeName; name != "" {
		ctx.Tell(messages.Events, messages.NodeEvent(name, v1.EventTypeWarning, reason, text, ctx.Now()))
	}
}

// waitsForRemoval reports whether the image of this need may be in removal. If so, the need waits for the end of the removal,
// since a look would still find the image.
func (a *images) waitsForRemoval(m messages.PullImage) bool {
	if !a.gc.settling && !a.gc.removing[fullName(m.Image)] {
		return false
	}
	a.gc.waiting[m.Key] = m
	return true
}

// askWaiting handles the needs that waited for a removal.
func (a *images) askWaiting(ctx supervisors.Context) {
	waiting := a.gc.waiting
	a.gc.waiting = map[messages.ImageKey]messages.PullImage{}
	for _, m := range waiting {
		a.handlePullImage(ctx, m)
	}
}

// forget drops the leases and waiting needs of a pod.
func (c *collector) forget(uid string) {
	maps.DeleteFunc(c.leases, func(k messages.ImageKey, _ lease) bool { return k.UID == uid })
	maps.DeleteFunc(c.waiting, func(k messages.ImageKey, _ messages.PullImage) bool { return k.UID == uid })
}
