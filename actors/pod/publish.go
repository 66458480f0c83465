package pod

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/playlet-dev/playlet/actors/pod/podstatus"
	"github.com/playlet-dev/playlet/messages"
)

// reportAgain is the period after which an unchanged status, or list of probes, is sent again: a message may have been lost.
// Every audit, once a minute, is an opportunity.
const reportAgain = 50 * time.Second

// publish sends the pod's status after a change, and periodically.
func (m *Machine) publish() {
	if m.Pod == nil || !m.read || (m.phase == Reading && m.probeResultsUnknown()) || m.hookStateUnknown() {
		return
	}
	msg := messages.PodStatusChanged{UID: m.uid, Generation: m.Wanted.Generation, Phase: string(m.phase), Status: m.status()}
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
		waits.RetryAt = time.Time{} // a retry alone is no change
	}
	for _, c := range m.Containers {
		if r := m.starts().Hold(c); r != nil {
			msg.Holds = append(msg.Holds, *r)
			msg.Holds[len(msg.Holds)-1].Container = c.Name
		}
	}
	if was := &m.reported; was.Status != nil && was.Phase == msg.Phase && was.Generation == msg.Generation && waits == m.waited &&
		equality.Semantic.DeepEqual(was.Status, msg.Status) {
		if m.now.Before(m.reportedAt.Add(reportAgain)) {
			return
		}
		msg.Status = was.Status
	}
	m.recordFamily(msg.Status)
	m.reported, m.waited, m.reportedAt = msg, waits, m.now
	m.emit(Tell{messages.Pods, msg})
}

// status returns the pod's present status.
func (m *Machine) status() *v1.PodStatus {
	if m.Wanted != nil && m.Wanted.Final != nil {
		return m.Wanted.Final
	}
	p := podstatus.Pod{
		State: &m.State, Reported: m.reported.Status, Now: m.now, Live: m.live(),
		Unsure:  m.phase == Terminating && (!m.settle.IsZero() || m.holdsClaims()),
		Over:    m.phase == Cleaning || m.phase == Finished,
		Mounted: m.volumes.mounted, Group: m.cgroup.has, Restarting: m.restarting(), Hold: m.starts().Hold,
	}
	if m.resizing.active && m.live() {
		p.Resizing = m.inProgress()
	}
	return p.Status()
}
