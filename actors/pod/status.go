package pod

import (
	"cmp"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/actors/pod/resources"
	"github.com/playlet-dev/playlet/cri/translate"
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

// status is the pod's status as the kubelet computes it. Unchanged conditions keep their transition times.
func (m *Machine) status() *v1.PodStatus {
	if m.desired != nil && m.desired.Final != nil {
		return m.desired.Final
	}
	s := &v1.PodStatus{
		QOSClass: translate.QOSClass(m.Pod), ObservedGeneration: m.Pod.Generation,
	}
	if !m.started.IsZero() {
		t := metav1.NewTime(m.started.Truncate(time.Second))
		s.StartTime = &t
	}
	for _, c := range m.Containers {
		switch {
		case c.Spec == nil:
		case c.Ephemeral:
			s.EphemeralContainerStatuses = append(s.EphemeralContainerStatuses, m.containerStatus(c))
		case c.Init:
			s.InitContainerStatuses = append(s.InitContainerStatuses, m.containerStatus(c))
		default:
			s.ContainerStatuses = append(s.ContainerStatuses, m.containerStatus(c))
		}
	}
	shareLastWords(s)
	m.settlePhase(s)
	m.settleEnd(s)
	s.AllocatedResources, s.Resources = m.wholeResources(s.Phase)
	m.addresses(s)
	m.conditions(s)
	return s
}

// lastWordsBytes is what the termination messages of all containers of a pod have together in its status, in equal shares
// (v1.Container.TerminationMessagePath).
const lastWordsBytes = 12 << 10

// shareLastWords shortens the messages that are longer than their container's share.
func shareLastWords(s *v1.PodStatus) {
	lists := [][]v1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses}
	share := lastWordsBytes / max(len(lists[0])+len(lists[1])+len(lists[2]), 1)
	for _, list := range lists {
		for i := range list {
			for _, end := range []*v1.ContainerStateTerminated{list[i].State.Terminated,
				list[i].LastTerminationState.Terminated} {
				if end != nil && len(end.Message) > share {
					end.Message = strings.ToValidUTF8(end.Message[:share], "") // the cut may have gone through a letter
				}
			}
		}
	}
}

// wholeResources are those of the pod as a whole (KEP-5419): the requests that are allocated to it, and what it has. A pod that
// runs has what its cgroup was given, which knows of CPU and memory.
func (m *Machine) wholeResources(phase v1.PodPhase) (v1.ResourceList, *v1.ResourceRequirements) {
	if !m.set.PodLevelResize {
		return nil, nil
	}
	requests := translate.PodRequests(m.Pod)
	switch last := m.desired.Last; {
	case m.cgroup.has == nil && last != nil && last.Phase == v1.PodRunning && last.Resources != nil:
		return requests, last.Resources // its cgroup is not known yet
	case m.cgroup.has != nil && phase == v1.PodRunning:
		return requests, resources.OfCgroup(m.cgroup.has)
	}
	return requests, &v1.ResourceRequirements{Requests: requests, Limits: translate.PodLimits(m.Pod)}
}

// addresses adds the pod's addresses and the node's. The pod's are the node's on the host's network; else the sandbox's, and
// those of the last one where there is none, since others still ask where a pod that has ended was.
func (m *Machine) addresses(s *v1.PodStatus) {
	var host []string
	if !m.set.Unsettled() {
		host = m.set.HostIPs()
	}
	for _, ip := range host {
		s.HostIP = cmp.Or(s.HostIP, ip)
		s.HostIPs = append(s.HostIPs, v1.HostIP{IP: ip})
	}
	own := m.Sandboxes.LastIPs
	if m.Pod.Spec.HostNetwork {
		own = host
	}
	for _, ip := range own {
		s.PodIP = cmp.Or(s.PodIP, ip)
		s.PodIPs = append(s.PodIPs, v1.PodIP{IP: ip})
	}
}

// byFamily are a pod's addresses as they are used and told: the first of the node's first family, and then the first of the
// other, as with the kubelet. A runtime may have more, in any order.
func (m *Machine) byFamily(ips []string) []string {
	host := m.set.HostIPs()
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
		return m.set.HostIPs()
	default:
		return current.IPs
	}
}
