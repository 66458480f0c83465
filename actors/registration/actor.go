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

	looking          bool      // at the machine and its addresses
	asking, askAgain bool      // the network's configuration
	listing          bool      // images,
	imagesAt         time.Time // which were listed last then
	writing          bool
	retry            supervisors.Timer
	grace            supervisors.Timer
	lastLogged       string // the problem that was logged last
	runtime          messages.RuntimeStateChanged

	csi csiState

	lease      leaseState
	leaseTimer supervisors.Timer
}

type (
	lookDue  struct{}
	retryDue struct{}
	// graceDue: the runtime has been away for too long.
	graceDue struct{}
	seen     struct{ Seen }
	wrote    struct {
		write write
		node  *v1.Node
		err   error
	}
)

const (
	// writeTimeout bounds one write; the client's own timeout is usually shorter.
	writeTimeout = 30 * time.Second
	// watchTimeout is after how long the watch is asked again where nothing happens.
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
	case machineSeen:
		a.onMachine(ctx, m)
	case networkSeen:
		a.onNetwork(ctx, m)
	case imagesSeen:
		a.onImages(ctx, m)
	case seen:
		a.onSeen(ctx, m.Seen)
	case wrote:
		a.onWrote(ctx, m)
	case retryDue:
		a.act(ctx)
	case graceDue:
		a.gather(ctx)
		a.act(ctx)
	case leaseDue:
		a.renew(ctx)
	case leased:
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
	case csiWrote:
		a.onCSIWrote(ctx, m)
	case csiRetryDue:
		a.csi.retry = nil
		a.writeCSINode(ctx)
	case messages.GetNode:
		if a.state.heard { // else it is sent then
			ctx.Reply(messages.NodeObserved{Node: a.state.node})
		}
	default:
		ctx.Unhandled(msg)
	}
}

func (a *actor) start(ctx supervisors.Context) {
	a.state = nodeState{
		desired: a.opts.Desired, sizes: a.opts.Sizes, began: a.life.begin(ctx.Now()), every: a.opts.ReportFrequency,
		random:     a.opts.Random,
		registered: a.life.registered.Load(),
	}
	ctx.After(a.opts.UpdateFrequency, lookDue{})
	a.await(ctx, 0)
	a.gather(ctx)
	a.renew(ctx)
}

// await waits for what the watch sees next.
func (a *actor) await(ctx supervisors.Context, version uint64) {
	w := a.opts.Watch
	ctx.Do(supervisors.Work{Name: "WatchNode", Timeout: watchTimeout, Run: func(ctx context.Context) any {
		return seen{w.Next(ctx, version)}
	}})
}

func (a *actor) onSeen(ctx supervisors.Context, s Seen) {
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

// noteRegistered has the lease made as soon as there is a Node to which it can belong.
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

// sendNode sends the Node to those who need it.
func (a *actor) sendNode(ctx supervisors.Context) {
	if !a.state.heard {
		return
	}
	a.life.startup.Observed(a.state.node, ctx.Now())
	a.publish() // before the receivers look for its addresses
	for _, to := range []messages.Address{messages.Pods, messages.Status, messages.Runtime, messages.Volumes} {
		ctx.Tell(to, messages.NodeObserved{Node: a.state.node})
	}
}

// recordEvents has Events written about changes of the Node; was is nil where the Node was just made.
func (a *actor) recordEvents(ctx supervisors.Context, was *v1.Node) {
	if a.state.node == nil {
		return
	}
	for _, e := range nodeEvents(was, a.state.node, ctx.Now()) {
		ctx.Tell(messages.Events, e)
	}
}

// onRuntime looks at once where the runtime, or its network, became ready or ceased to be.
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

// act does what is to be done next, one thing at a time.
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
			return wrote{d, node, err}
		}
		node, err := nodes.Create(ctx, d.create, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) { // made meanwhile; what differs is patched next
			d.create = nil
			node, err = nodes.Get(ctx, name, metav1.GetOptions{})
		}
		return wrote{d, node, err}
	}})
}

func (a *actor) onWrote(ctx supervisors.Context, m wrote) {
	a.writing = false
	switch {
	case m.err == nil:
		a.wroteNode(ctx, m)
	case apierrors.IsNotFound(m.err) && m.write.create == nil:
		// It is gone; the watch says so too.
		a.failed(ctx, m.write, "the Node "+a.opts.Desired.Name+" is not there")
	default:
		a.failed(ctx, m.write, "the Node "+a.opts.Desired.Name+" cannot be written: "+
			apiclient.Explain(m.err, a.opts.Desired.Name))
	}
	a.act(ctx)
}

func (a *actor) wroteNode(ctx supervisors.Context, m wrote) {
	was := a.state.node
	known := was != nil
	if m.write.create != nil {
		ctx.Log().Info("the Node is registered", "node", m.node.Name, "uid", m.node.UID)
		a.life.startup.Registered(a.state.began, ctx.Now())
		was = nil // the watch may have seen it before the answer came, and no Events were recorded then
	}
	a.state.done(m.write, m.node, ctx.Now())
	if reset := a.opts.Sizes.Reset; reset != nil && (m.write.status || m.write.create != nil) {
		reset()
	}
	a.state.heard = true
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

// failed has the write tried again later, and says so once.
func (a *actor) failed(ctx supervisors.Context, d write, why string) {
	rest := a.state.fail(d, why, ctx.Now())
	if why != a.lastLogged {
		ctx.Log().Warn("writing the Node failed; it is tried again", "error", why)
		a.lastLogged = why
	}
	if a.retry != nil {
		a.retry.Cancel()
	}
	a.retry = ctx.After(rest, retryDue{})
}

// publish writes the state for health and for readers of the addresses.
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
		s.Problems = append(s.Problems, "not all of the machine can be read: "+messages.OneLine(err))
	}
	if err := a.state.facts.addressErr; err != nil {
		s.Problems = append(s.Problems, "the node's addresses are left as they were: "+messages.OneLine(err))
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
	Heard      bool      `json:"heard"`      // whether there is a Node is known
	Registered bool      `json:"registered"` // there is one
	Reported   time.Time `json:"reported,omitzero"`
	Leased     time.Time `json:"leased,omitzero"`
	Problems   []string  `json:"problems,omitempty"`
}

func (a *actor) Inspect() any {
	return Inspection{
		Heard: a.state.heard, Registered: a.state.node != nil, Reported: a.state.reported, Leased: a.lease.renewed,
		Problems: a.opts.State.Load().Problems,
	}
}
