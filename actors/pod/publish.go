package pod

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/playlet-dev/playlet/actors/pod/podstatus"
	"github.com/playlet-dev/playlet/messages"
)

// reportAgain is after how long an unchanged status is sent again: the message may have been lost.
// Every audit, once a minute, is a chance.
const reportAgain = 50 * time.Second

// publish tells the pod's status when it has changed, and again at times.
func (m *Machine) publish() {
	if m.Pod == nil || !m.read || (m.phase == Reading && m.unproved()) || m.unasked() {
		return
	}
	msg := messages.PodStatusChanged{UID: m.uid, Generation: m.desired.Generation, Phase: string(m.phase), Status: m.status()}
	var waits messages.Reason
	if waiting := m.waiting(); waiting != nil {
		waits = *waiting
		if waits.Since.IsZero() {
			waits.Since = m.now
			if was := m.waited; was.Container == waits.Container && was.Volume == waits.Volume && was.Code == waits.Code {
				waits.Since = was.Since
			}
		}
		msg.Waiting = new(waits)
		waits.RetryAt = time.Time{} // a retry alone is no news
	}
	if m.told.Status != nil && m.told.Phase == msg.Phase && m.told.Generation == msg.Generation && waits == m.waited &&
		equality.Semantic.DeepEqual(m.told.Status, msg.Status) {
		if m.now.Before(m.toldAt.Add(reportAgain)) {
			return
		}
		msg.Status = m.told.Status
	}
	m.told, m.waited, m.toldAt = msg, waits, m.now
	m.emit(Tell{messages.Pods, msg})
}

// status is the pod's status as it is now.
func (m *Machine) status() *v1.PodStatus {
	if m.desired != nil && m.desired.Final != nil {
		return m.desired.Final
	}
	p := podstatus.Pod{
		State: &m.State, Wanted: m.desired, Told: m.told.Status, Now: m.now, Started: m.started, Live: m.live(),
		Unsure: m.phase == Terminating && !m.settle.IsZero(), Over: m.phase == Cleaning || m.phase == Finished,
		Verdict: m.verdict, Mounted: m.volumes.mounted, Group: m.cgroup.has, Restarting: m.restarting(),
		Hold: m.hold,
	}
	if m.resizing.active && m.live() {
		p.Resizing = m.inProgress()
	}
	return p.Status()
}

// byFamily are a pod's addresses as they are used and told: the first of the node's first family, and then the first of the
// other, as with the kubelet. A runtime may have more, in any order.
func (m *Machine) byFamily(ips []string) []string {
	host := m.Set.HostIPs()
	if len(ips) < 2 || len(host) == 0 {
		return ips
	}
	six := func(ip string) bool { return strings.Contains(ip, ":") }
	var out []string
	for _, want := range []bool{six(host[0]), !six(host[0])} {
		if i := slices.IndexFunc(ips, func(ip string) bool { return six(ip) == want }); i >= 0 {
			out = append(out, ips[i])
		}
	}
	return out
}

// ips are the addresses at which the pod can be reached: the sandbox's, or the node's on the host's network.
func (m *Machine) ips() []string {
	current := m.Sandboxes.Current()
	switch {
	case current == nil:
		return nil
	case m.Pod.Spec.HostNetwork:
		return m.Set.HostIPs()
	default:
		return current.IPs
	}
}
