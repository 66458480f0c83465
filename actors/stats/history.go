package stats

import (
	"context"

	api "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/playlet-dev/playlet/actors/internal/history"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// RecordFigures keeps the recording of figures on, and starts it if necessary. Each reader of figures calls it.
func (c *Collector) RecordFigures() {
	if !c.history.Request(c.opts.Now()) {
		return
	}
	c.mu.Lock()
	tell := c.tell
	c.mu.Unlock()
	if tell != nil {
		tell(messages.Stats, messages.RecordFigures{})
	}
}

// History returns the recorded figures of a pod and its containers; of the node and its system containers where uid is empty.
func (c *Collector) History(uid string) []history.Series { return c.history.Of(uid) }

// sampled is sent when a sample was recorded, and sampleDue when the next one is due.
type (
	sampleResult struct{}
	sampleDue    struct{}
)

func (sampleResult) Routine() {}
func (sampleDue) Routine()    {}

// record begins a sample, unless one is in progress or the next is scheduled.
func (a *actor) record(ctx supervisors.Context) {
	if a.recording {
		return
	}
	a.recording = true
	a.sample(ctx)
}

// sample records one sample, or ends the recording when nobody has read figures for history.Idle.
func (a *actor) sample(ctx supervisors.Context) {
	if !a.collector.history.Active(ctx.Now()) {
		a.recording = false
		return
	}
	ctx.Do(supervisors.Work{Name: "RecordFigures", Timeout: 2 * partTimeout, Routine: true, Run: func(ctx context.Context) any {
		a.collector.recordSample(ctx)
		return sampleResult{}
	}})
}

// recordSample records the figures that other readers would get now. Volumes are not walked for it.
func (c *Collector) recordSample(ctx context.Context) {
	f := c.collect(ctx, fullAge, true, urgency{skip: true})
	s := &api.Summary{Node: c.nodeStats(f, true)}
	for i := range f.pods {
		s.Pods = append(s.Pods, f.podStats(&f.pods[i], true))
	}
	c.history.Add(f.at, s)
}
