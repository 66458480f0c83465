package registration

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/backoff"
)

// nodeState is the pure core: it holds the facts and decides the next write. It has no clock and does no I/O.
type nodeState struct {
	desired  NodeConfig
	sizes    Sizes
	began    time.Time // of the process
	interval time.Duration
	// random is in [0, 1).
	random func() float64

	facts    facts
	gathered bool

	nodeKnown  bool     // the API server has answered whether the Node exists
	node       *v1.Node // the API server's; nil for none
	watched    uint64   // the watch's version, which may lag behind the answer to a write
	registered bool     // the Node existed during this process
	reconciled types.UID
	reported   time.Time // of the last status; zero before the first
	spread     time.Duration
	statusAt   time.Time // of this actor's last patch of the status
	metaAt     time.Time // of its last patch of the metadata

	failures   int
	retryAt    time.Time
	failed     string // the error of the last write of status or Node
	metaFailed string // the error of the last write of metadata, which delays no other write
	watching   string // the error of the watch
}

// write is one write, of which one is in progress at a time.
type write struct {
	create *v1.Node // the Node to create
	patch  []byte   // of the existing Node
	status bool     // the patch is of the status
	base   *v1.Node // the known Node when the patch was composed; nil for none
}

func (d write) none() bool { return d.create == nil && d.patch == nil }

// name returns the write's name for the log.
func (d write) name() string {
	switch {
	case d.create != nil:
		return "CreateNode"
	case d.status:
		return "PatchNodeStatus"
	default:
		return "PatchNode"
	}
}

// next returns the next write, if one is due.
func (b *nodeState) next(now time.Time) (write, error) {
	if !b.gathered || !b.nodeKnown || now.Before(b.retryAt) {
		return write{}, nil
	}
	if b.node == nil {
		if b.registered || !b.desired.Register {
			return write{}, nil
		}
		return write{create: compose(b.desired, b.sizes, b.facts, b.desired.initial(), b.began, now)}, nil
	}
	meta, err := metadataPatch(b.node, withDrivers(b.desired.reconciled(b.node, b.reconciled != b.node.UID), b.facts.drivers))
	switch {
	case err != nil:
		return write{}, err
	case meta == nil:
		b.reconciled, b.metaFailed = b.node.UID, ""
	case !now.Before(b.metaAt.Add(writeRest)):
		return write{patch: meta, base: b.node}, nil
	}
	status := compose(b.desired, b.sizes, b.facts, b.node, b.began, now)
	switch changed := differs(b.node, status); {
	case !changed && !b.due(now):
		return write{}, nil
	case changed && !conditionChanged(b.node, status) && now.Before(b.statusAt.Add(writeRest)):
		return write{}, nil // the next gathering decides
	}
	text, err := statusPatch(b.node, status)
	return write{patch: text, status: true, base: b.node}, err
}

// writeRest is the minimum time between writes, except for a changed condition: otherwise an API server or another writer that
// reverts a write would cause writes without end.
const writeRest = 9 * time.Second

// conditionChanged reports whether one of the agent's conditions differs from the API server's, or the volumes in use, for which
// pods wait.
func conditionChanged(node, status *v1.Node) bool {
	if !slices.Equal(node.Status.VolumesInUse, status.Status.VolumesInUse) {
		return true
	}
	for i := range status.Status.Conditions {
		c := &status.Status.Conditions[i]
		was := condition(node, c.Type)
		if was == nil || was.Status != c.Status || was.Reason != c.Reason || was.Message != c.Message {
			return true
		}
	}
	return false
}

// due reports whether an unchanged status has to be reported.
func (b *nodeState) due(now time.Time) bool {
	return b.reported.IsZero() || now.Sub(b.reported) >= b.interval+b.spread
}

// observe records the watch's observation, and reports whether the Node changed.
func (b *nodeState) observe(s Observation) bool {
	b.watching = ""
	if s.Err != nil {
		b.watching = s.Err.Error()
	}
	if s.Heard == b.watched {
		return false
	}
	if b.watched = s.Heard; older(s.Node, b.node) {
		return false // the watch lags behind the answer
	}
	changed := !b.nodeKnown || b.node != s.Node
	b.nodeKnown = true
	if s.Node == nil && b.node != nil { // the failures were about the deleted Node
		b.failures, b.retryAt, b.failed, b.metaFailed = 0, time.Time{}, "", ""
	}
	b.take(s.Node)
	return changed
}

// older reports whether a is the same object as b at an earlier time.
func older(a, b *v1.Node) bool {
	if a == nil || b == nil || a.UID != b.UID {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	return err == nil && order < 0
}

func (b *nodeState) take(node *v1.Node) {
	b.node = node
	if node != nil {
		b.registered = true
	}
}

// done records the Node that a write returned.
func (b *nodeState) done(d write, node *v1.Node, now time.Time) {
	b.failures, b.retryAt, b.failed = 0, time.Time{}, ""
	if d.create != nil {
		b.reconciled = node.UID
	}
	if d.create != nil || d.status {
		// A change moves the next report by a random time, so that nodes do not report all at once. A report that was due keeps
		// its time.
		b.spread = 0
		if b.reported.IsZero() || b.node == nil || differs(b.node, node) {
			b.spread = time.Duration((b.random() - 0.5) * float64(b.interval))
		}
		b.reported = now
	}
	switch {
	case d.status:
		b.statusAt = now
	case d.create == nil:
		b.metaAt, b.metaFailed = now, ""
	}
	// The watch may have a newer Node. A Node older than the patched one is the present one after a restored backup.
	if !older(node, b.node) || older(node, d.base) {
		b.take(node)
	}
}

// retry is the back-off after a failed write, the kubelet's.
var retry = backoff.Policy{First: 200 * time.Millisecond, Max: 7 * time.Second}

// fail records the failure of a write, and returns the time until its retry. An API server may refuse a label for ever, e.g. that
// of a CSI driver: the status is written all the same.
func (b *nodeState) fail(d write, why string, now time.Time) time.Duration {
	if d.patch != nil && !d.status {
		b.metaAt, b.metaFailed = now, why
		return writeRest
	}
	b.failures++
	rest := retry.After(b.failures, 0)
	b.failed, b.retryAt = why, now.Add(rest)
	return rest
}

// problems returns the failures as sentences.
func (b *nodeState) problems() []string {
	var out []string
	if b.failed != "" {
		out = append(out, b.failed)
	}
	if b.metaFailed != "" && b.metaFailed != b.failed {
		out = append(out, b.metaFailed)
	}
	if b.watching != "" && len(out) == 0 {
		out = append(out, b.watching)
	}
	switch {
	case !b.nodeKnown || b.node != nil || b.failed != "":
	case b.registered:
		out = append(out,
			fmt.Sprintf("somebody has deleted the Node %s; as with the kubelet, it is made again when the agent is restarted",
				b.desired.Name))
	case !b.desired.Register:
		out = append(out, fmt.Sprintf("there is no Node %s, and registerNode is off: whoever sets nodes up here has to make it",
			b.desired.Name))
	}
	return out
}

// pressures records a measurement, and reports whether it changed.
func (b *nodeState) pressures(m messages.NodePressureObserved) bool {
	was := b.facts.pressures
	b.facts.pressures = m.Pressures
	return !slices.EqualFunc(was, m.Pressures, func(p, q messages.Pressure) bool {
		return p.Type == q.Type && p.Under == q.Under && p.Message == q.Message
	})
}
