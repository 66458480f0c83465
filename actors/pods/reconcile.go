package pods

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/metrics"
	"github.com/playlet-dev/playlet/actors/pods/found"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// entry returns the entry of this UID, and creates it if necessary. The name may be unknown.
func (a *actor) entry(uid, name string, now time.Time) *entry {
	e := a.entries[uid]
	if e == nil {
		e = &entry{uid: uid, state: unclaimed, firstSeen: now}
		a.entries[uid] = e
	}
	e.name = cmp.Or(name, e.name)
	return e
}

// reconcile brings every entry into its proper state: first the entries that free or keep names, then the held ones in the order
// of the sources.
func (a *actor) reconcile(ctx supervisors.Context) {
	a.changed(ctx)
	v := view{now: ctx.Now(), unready: a.unready(), up: !a.node.shutdown}
	if a.phase == hearing && !a.opts.Unheard && a.sources.synced() {
		a.enterPhase(ctx, complete)
		defer a.sweep(ctx)
	}
	defer a.sendObjects(ctx, false)
	successors := make(map[string]bool, len(a.wanted))
	for _, e := range a.wanted {
		successors[e.name] = true
	}
	for _, uid := range slices.Sorted(maps.Keys(a.entries)) {
		e := a.entries[uid]
		if e.state == held && e.wanted != nil {
			continue
		}
		v.successor = e.wanted == nil && successors[e.name]
		v.orphan = v.unready == nil && a.orphaned(e)
		a.step(ctx, e, &v)
		if e.state == unclaimed && e.audited == nil && e.record == (record{}) && e.goneAt.IsZero() {
			delete(a.entries, uid)
		}
	}
	names := a.takenNames()
	var fresh []*entry
	for _, e := range a.wanted {
		if e.state != held {
			continue
		}
		v.lacks, v.nameTaken = nil, nil
		if v.unready == nil {
			v.lacks, v.nameTaken = e.unsupported(), names.taken(e)
		}
		if a.step(ctx, e, &v) {
			names.has[e.name] = e
			fresh = append(fresh, e)
		}
	}
	a.sendHolding(ctx, false)
	a.admitNew(ctx, fresh)
	a.sendHolding(ctx, false)
}

// step advances an entry as far as possible, and reports whether admission has to decide about it.
func (a *actor) step(ctx supervisors.Context, e *entry, v *view) (admit bool) {
	for {
		from := e.state
		to, fx := next(e, v)
		if !e.hasActor() && to == ending {
			a.spawn(ctx, e)
		}
		if fx.take {
			a.recordMissing(ctx, e)
			e.takePod()
		}
		if fx.end != nil {
			e.ending = fx.end
		}
		if to != from {
			a.enter(ctx, e, to)
		}
		if fx.renew {
			a.renew(ctx, e)
		}
		if fx.why != nil {
			a.hold(ctx, e, *fx.why, fx.hidden)
		}
		if to == from || to == held {
			return fx.admit
		}
	}
}

// entered performs the actions of a transition.
func (a *actor) entered(ctx supervisors.Context, e *entry, from state) {
	switch e.state {
	case replacing, clearing:
		ctx.Stop(e.uid)
	case unclaimed:
		e.before = nil
		if from == leaving && e.wanted != nil && e.wanted.source != messages.APIServer {
			e.before = restartsOf(e.status)
		}
		if from == leaving && e.wanted != nil {
			e.firstSeen = ctx.Now()
			metrics.PodRestarted(e.wanted.source != messages.APIServer)
		}
		e.life, e.why = life{}, nil
		if from == leaving && e.wanted != nil {
			a.sendHolding(ctx, false) // a static pod with a changed manifest has its UID: what it had is released first
		}
		if from == over || from == leaving { // the next life of the agent must not take a pod that runs by then for the old one
			a.keep(ctx, e, record{})
		}
	case over:
		e.pod = e.wanted.pod
		a.keep(ctx, e, record{Final: e.record.Final})
		a.sendStatus(ctx, e)
	default: // no actions
	}
}

// restartsOf returns the restart counts of a pod's containers. As with the kubelet, a pod that returns with its UID continues
// them.
func restartsOf(s *v1.PodStatus) *v1.PodStatus {
	if s == nil {
		return nil
	}
	counts := func(all []v1.ContainerStatus) (out []v1.ContainerStatus) {
		for i := range all {
			s := &all[i]
			out = append(out, v1.ContainerStatus{Name: s.Name, ContainerID: s.ContainerID, RestartCount: s.RestartCount})
		}
		return out
	}
	return &v1.PodStatus{InitContainerStatuses: counts(s.InitContainerStatuses), ContainerStatuses: counts(s.ContainerStatuses)}
}

func (a *actor) spawn(ctx supervisors.Context, e *entry) {
	a.order++
	lingers := e.record.Final != nil && e.audited != nil && e.audited.Alive()
	e.life = life{order: a.order, generation: 1, failed: ctx.Now(), lingers: lingers}
	if e.wanted != nil {
		e.source, e.manifest = e.wanted.source, e.wanted.manifest
		if e.source == messages.APIServer {
			e.allocation = e.lastAllocation()
		}
		e.setPod(e.wanted.pod)
	} else {
		e.pod, e.claim = found.Pod(e.audited), found.Claim(e.audited, e.record.Allocated)
		metrics.OrphanedPods.WithLabelValues().Inc()
	}
	e.audited, e.why, e.reported.pod, e.reported.why = nil, nil, nil, messages.Reason{}
	metrics.WorkerStart.WithLabelValues().Observe(ctx.Now().Sub(e.firstSeen).Seconds())
	ctx.Spawn(e.uid)
}

// names are the full names in use.
type names struct {
	has map[string]*entry // the owner
	// found are the UIDs of running pods without an actor that may yet be adopted: they are listed, or their source has not
	// reported. No other pod of that name starts beside one.
	found map[string][]string
	// spared are the manifests for which found pods are left alone, by pod name.
	spared map[string]string
}

func (a *actor) takenNames() names {
	n := names{map[string]*entry{}, map[string][]string{}, map[string]string{}}
	for _, e := range a.entries {
		switch {
		case e.hasActor() && e.objectGone(): // only dead containers are left of it
		case e.hasActor():
			if was := n.has[e.name]; was == nil || was.ending != nil {
				n.has[e.name] = e
			}
		case e.audited != nil && (e.wanted != nil || !a.sources.unwanted(e.audited)):
			n.found[e.name] = append(n.found[e.name], e.uid)
			if manifest := a.spared(e); manifest != "" {
				n.spared[e.name] = manifest
			}
		}
	}
	return n
}

// taken returns the reason for which a pod has to wait for another of its name, or nil.
func (n *names) taken(e *entry) *messages.Reason {
	switch by, uids := n.has[e.name], n.found[e.name]; {
	case by != nil && by.ending != nil:
		return &messages.Reason{Code: messages.ReasonPredecessorEnding, Message: "a pod of the same name is still ending"}
	case by != nil:
		return &messages.Reason{Code: messages.ReasonNameTaken, Message: fmt.Sprintf(
			"%s wants a pod of the same name, which comes first: remove one of the two", by.wanted.source)}
	case len(uids) > 0 && !slices.Contains(uids, e.uid) && n.spared[e.name] != "":
		return &messages.Reason{Code: messages.ReasonPredecessorFound, Message: "a pod of the same name runs, and is left " +
			"as it is: " + n.spared[e.name] + " cannot be used, and may name it"}
	case len(uids) > 0 && !slices.Contains(uids, e.uid):
		return &messages.Reason{Code: messages.ReasonPredecessorFound,
			Message: "a pod of the same name was found running, and not every source has said yet whether it is wanted"}
	}
	return nil
}

func (a *actor) renew(ctx supervisors.Context, e *entry) {
	e.generation++
	a.tell(ctx, e)
}

func (a *actor) tell(ctx supervisors.Context, e *entry) {
	if e.state == leaving {
		return
	}
	m := messages.PodWanted{
		Pod: e.pod, Generation: e.generation, Final: e.record.Final, Unkept: e.record.Final != e.saved.Final, Last: e.status,
		ObjectGone: e.objectGone(), Order: e.order, Ending: e.ending, Fail: e.saved.Fail, Pending: e.pending,
		Resized: e.record.Allocated != nil,
	}
	switch {
	case e.status != nil:
	case e.source == messages.APIServer:
		m.Last = &e.pod.Status
	default:
		m.Last = e.before
	}
	if !e.pod.Spec.HostNetwork {
		m.NoNetwork = noNetwork(a.node.runtime)
	}
	e.objectGoneSent = m.ObjectGone
	ctx.Tell(messages.PodAddress(e.uid), m)
}

// stopped handles the stop of an actor. An ender replaces an actor in quarantine. A pod without remains is forgotten, and a
// successor that waits for its name may start. A deleted pod is kept as long as its object exists.
func (a *actor) stopped(ctx supervisors.Context, e *entry) {
	to := unclaimed
	switch {
	case e.state == replacing, e.state == clearing && e.record.Final == nil:
		ctx.SpawnKind("ender", e.uid)
		return
	case e.state == leaving && e.deleted():
		to = over
	case e.state != leaving && e.state != clearing:
		return
	}
	e.goneAt = ctx.Now()
	a.enter(ctx, e, to)
	a.reconcile(ctx)
	a.sendStatuses(ctx)
}
