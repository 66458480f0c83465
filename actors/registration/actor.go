package registration

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/playlet-dev/playlet/actors/internal/apiclient"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

type actor struct {
	opts  Options
	life  *life
	state nodeState

	looking          bool      // a reading of the machine and its addresses is in progress
	asking, askAgain bool      // a check of the network's configuration is in progress, and another is pending
	listing          bool      // a list of images is in progress
	imagesAt         time.Time // when the images were last listed
	writing          bool
	retry            supervisors.Timer
	grace            supervisors.Timer
	lastLogged       string // the last problem in the log
	runtime          messages.RuntimeStateChanged

	csi csiState

	reading         bool   // a read of the Node for pods is in progress
	asked, answered uint64 // the highest GetNode.Read, and the highest one that was answered

	lease      leaseState
	leaseTimer supervisors.Timer
}

type (
	lookDue  struct{}
	retryDue struct{}
	// graceDue ends the grace period of a runtime that is away.
	graceDue    struct{}
	watchResult struct{ Observation }
	writeResult struct {
		write write
		node  *v1.Node
		err   error
	}
	readResult struct {
		asked   uint64
		watched uint64 // the version of the watch when the read began
		node    *v1.Node
		err     error
	}
)

const (
	// writeTimeout bounds one write; the client's own timeout is usually shorter.
	writeTimeout = 30 * time.Second
	// watchTimeout bounds one wait for a change of the Node.
	watchTimeout = 10 * time.Minute
)

func (a *actor) Receive(ctx supervisors.Context, msg any) {
	switch m := msg.(type) {
	case messages.Started:
		a.start(ctx)
	case lookDue:
		ctx.After(a.opts.UpdateFrequency, lookDue{})
		a.gather(ctx)
		a.act(ctx)
		a.sendNode(ctx)
	case machineResult:
		a.onMachine(ctx, m)
	case networkResult:
		a.onNetwork(ctx, m)
	case imagesResult:
		a.onImages(ctx, m)
	case watchResult:
		a.onSeen(ctx, m.Observation)
	case writeResult:
		a.onWrote(ctx, m)
	case retryDue:
		a.act(ctx)
	case graceDue:
		a.gather(ctx)
		a.act(ctx)
	case leaseDue:
		a.renew(ctx)
	case leaseResult:
		a.renewedLease(ctx, m)
	case messages.RuntimeStateChanged:
		a.onRuntime(ctx, m)
	case messages.NodePressureObserved:
		if a.state.pressures(m) {
			a.act(ctx)
		}
	case messages.NodeShutdownObserved:
		if a.state.facts.shutdown != m.Underway {
			a.state.facts.shutdown = m.Underway
			a.act(ctx)
		}
	case messages.VolumesInUse:
		a.state.facts.inUse, a.state.facts.inUseKnown = m.Names, true
		a.act(ctx)
	case messages.CSIDriversObserved:
		a.onDrivers(ctx, m)
	case csiWriteResult:
		a.onCSIWrote(ctx, m)
	case csiRetryDue:
		a.csi.retry = nil
		a.writeCSINode(ctx)
	case readResult:
		a.onRead(ctx, m)
	case messages.GetNode:
		if m.Read > 0 {
			a.asked = max(a.asked, m.Read)
			a.readNode(ctx)
		} else if a.state.nodeKnown { // otherwise the Node is sent as soon as it is known
			ctx.Reply(messages.NodeObserved{Node: a.state.node, Read: a.answered})
		}
	default:
		ctx.Unhandled(msg)
	}
}

func (a *actor) start(ctx supervisors.Context) {
	a.state = nodeState{
		desired: a.opts.Desired, sizes: a.opts.Sizes, began: a.life.begin(ctx.Now()), interval: a.opts.ReportFrequency,
		random:     a.opts.Random,
		registered: a.life.registered.Load(),
	}
	ctx.After(a.opts.UpdateFrequency, lookDue{})
	a.await(ctx, 0)
	a.gather(ctx)
	a.renew(ctx)
}

// await waits for the next change that the watch observes.
func (a *actor) await(ctx supervisors.Context, version uint64) {
	w := a.opts.Watch
	ctx.Do(supervisors.Work{Name: "WatchNode", Timeout: watchTimeout, Run: func(ctx context.Context) any {
		return watchResult{w.Next(ctx, version)}
	}})
}

func (a *actor) onSeen(ctx supervisors.Context, s Observation) {
	a.await(ctx, s.Version)
	if s.Err != nil {
		s.Err = apiclient.Explained(s.Err, a.opts.Desired.Name)
	}
	was := a.state.node
	known := was != nil
	if a.state.observe(s) {
		a.sendNode(ctx)
		if known {
			a.recordEvents(ctx, was)
		}
	}
	a.noteRegistered(ctx, known)
	a.act(ctx)
}

// noteRegistered creates the lease as soon as there is a Node to own it.
func (a *actor) noteRegistered(ctx supervisors.Context, known bool) {
	if a.state.node == nil {
		return
	}
	a.life.registered.Store(true)
	a.writeCSINode(ctx)
	if !known && a.lease.last == nil {
		a.renew(ctx)
	}
}

// sendNode sends the Node to the actors that use it.
func (a *actor) sendNode(ctx supervisors.Context) {
	if !a.state.nodeKnown {
		return
	}
	a.life.startup.Observed(a.state.node, ctx.Now())
	a.publish() // before the receivers read its addresses
	for _, to := range []messages.Address{messages.Pods, messages.Status, messages.Runtime, messages.Volumes} {
		ctx.Tell(to, messages.NodeObserved{Node: a.state.node, Read: a.answered})
	}
}

// readNode reads the Node for pods, once for all questions that arrive during a read.
func (a *actor) readNode(ctx supervisors.Context) {
	if a.reading {
		return
	}
	a.reading = true
	asked, watched, nodes, name := a.asked, a.state.watched, a.opts.Client.CoreV1().Nodes(), a.opts.Desired.Name
	ctx.Do(supervisors.Work{Name: "ReadNode", Timeout: writeTimeout, Run: func(ctx context.Context) any {
		node, err := nodes.Get(ctx, name, metav1.GetOptions{})
		return readResult{asked, watched, node, err}
	}})
}

// onRead sends the Node that was read, or the present one if that is newer. A failed read is repeated with the next question.
func (a *actor) onRead(ctx supervisors.Context, m readResult) {
	a.reading = false
	if m.err == nil && a.state.node == nil && a.state.watched != m.watched { // it may have been deleted during the read
		a.readNode(ctx)
		return
	}
	if m.err == nil {
		was := a.state.node
		a.answered, a.state.nodeKnown = max(a.answered, m.asked), true
		if !older(m.node, was) {
			a.state.take(m.node)
			if was != nil {
				a.recordEvents(ctx, was)
			}
			a.noteRegistered(ctx, was != nil)
		}
		a.sendNode(ctx)
	}
	if a.asked > m.asked {
		a.readNode(ctx)
	}
}

// recordEvents records Events about changes of the Node; was is nil for a new Node.
func (a *actor) recordEvents(ctx supervisors.Context, was *v1.Node) {
	if a.state.node == nil {
		return
	}
	for _, e := range nodeEvents(was, a.state.node, ctx.Now()) {
		ctx.Tell(messages.Events, e)
	}
}

// onRuntime gathers facts at once when the readiness of the runtime or of its network changes.
func (a *actor) onRuntime(ctx supervisors.Context, m messages.RuntimeStateChanged) {
	was := a.runtime
	a.runtime = m
	if was.Ready != m.Ready || was.Reason.Message != m.Reason.Message || was.NetworkReady != m.NetworkReady ||
		was.NetworkReason != m.NetworkReason ||
		was.Stale != m.Stale {
		a.gather(ctx)
		a.act(ctx)
	}
}

// act begins the next write, one at a time.
func (a *actor) act(ctx supervisors.Context) {
	defer a.publish()
	if a.writing {
		return
	}
	d, err := a.state.next(ctx.Now())
	if err != nil {
		a.failed(ctx, write{}, err.Error())
		return
	}
	if d.none() {
		return
	}
	a.writing = true
	if d.create != nil {
		a.life.startup.Attempted(ctx.Now())
	}
	client, name := a.opts.Client, a.opts.Desired.Name
	ctx.Do(supervisors.Work{Name: d.name(), Timeout: writeTimeout, Run: func(ctx context.Context) any {
		nodes := client.CoreV1().Nodes()
		if d.create == nil {
			var sub []string
			if d.status {
				sub = []string{"status"}
			}
			node, err := nodes.Patch(ctx, name, types.StrategicMergePatchType, d.patch, metav1.PatchOptions{}, sub...)
			return writeResult{d, node, err}
		}
		node, err := nodes.Create(ctx, d.create, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) { // created meanwhile; the next write patches the difference
			d.create = nil
			node, err = nodes.Get(ctx, name, metav1.GetOptions{})
		}
		return writeResult{d, node, err}
	}})
}

func (a *actor) onWrote(ctx supervisors.Context, m writeResult) {
	a.writing = false
	switch {
	case m.err == nil:
		a.wroteNode(ctx, m)
	case apierrors.IsNotFound(m.err) && m.write.create == nil:
		// The watch reports the deletion as well.
		a.failed(ctx, m.write, "the Node "+a.opts.Desired.Name+" is not there")
	default:
		a.failed(ctx, m.write, "the Node "+a.opts.Desired.Name+" cannot be written: "+
			apiclient.Explain(m.err, a.opts.Desired.Name))
	}
	a.act(ctx)
}

func (a *actor) wroteNode(ctx supervisors.Context, m writeResult) {
	was := a.state.node
	known := was != nil
	if m.write.create != nil {
		ctx.Log().Info("registered the Node", "node", m.node.Name, "uid", m.node.UID)
		a.life.startup.Registered(a.state.began, ctx.Now())
		was = nil // the watch may be ahead of the answer, and recorded no Events
	}
	a.state.done(m.write, m.node, ctx.Now())
	if reset := a.opts.Sizes.Reset; reset != nil && (m.write.status || m.write.create != nil) {
		reset()
	}
	a.state.nodeKnown = true
	if a.lastLogged != "" && a.state.metaFailed == "" {
		ctx.Log().Info("the Node can be written again")
		a.lastLogged = ""
	}
	a.sendNode(ctx)
	if known || m.write.create != nil {
		a.recordEvents(ctx, was)
	}
	a.noteRegistered(ctx, known)
}

// failed schedules a retry of the write and logs each new failure once.
func (a *actor) failed(ctx supervisors.Context, d write, why string) {
	rest := a.state.fail(d, why, ctx.Now())
	if why != a.lastLogged {
		ctx.Log().Warn("writing the Node failed; will retry", "error", why)
		a.lastLogged = why
	}
	if a.retry != nil {
		a.retry.Cancel()
	}
	a.retry = ctx.After(rest, retryDue{})
}

// publish stores the snapshot for health and for readers of the addresses.
func (a *actor) publish() {
	s := Snapshot{Registered: a.state.node != nil, Addresses: hostIPs(a.state.node), NotReady: notReady(a.state.node),
		Problems: a.state.problems()}
	if s.LeaseExpires = a.opts.State.Load().LeaseExpires; !a.lease.renewed.IsZero() {
		s.LeaseExpires = a.lease.renewed.Add(a.opts.LeaseDuration)
	}
	if len(s.Addresses) == 0 {
		s.Addresses = a.opts.State.Load().Addresses
	}
	if err := a.state.facts.machineErr; err != nil {
		s.Problems = append(s.Problems, "some properties of the machine cannot be read: "+messages.OneLine(err))
	}
	if err := a.state.facts.addressErr; err != nil {
		s.Problems = append(s.Problems, "the node's addresses were not updated: "+messages.OneLine(err))
	}
	if a.csi.failed != "" {
		s.Problems = append(s.Problems, a.csi.failed)
	}
	if a.lease.failed != "" {
		s.Problems = append(s.Problems, a.lease.failed)
	}
	a.opts.State.p.Store(&s)
}

// Inspection is the actor's answer to an inspection.
type Inspection struct {
	Heard      bool      `json:"heard"`      // the API server has answered whether the Node exists
	Registered bool      `json:"registered"` // the Node exists
	Reported   time.Time `json:"reported,omitzero"`
	Leased     time.Time `json:"leased,omitzero"`
	Problems   []string  `json:"problems,omitempty"`
}

func (a *actor) Inspect() any {
	return Inspection{
		Heard: a.state.nodeKnown, Registered: a.state.node != nil, Reported: a.state.reported, Leased: a.lease.renewed,
		Problems: a.opts.State.Load().Problems,
	}
}
