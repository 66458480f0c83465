package pod

import (
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
)

// reportAgain is after how long an unchanged status is sent again: the message may have been lost.
// Every audit, once a minute, is a chance.
const reportAgain = 50 * time.Second

// publish tells the pod's status when it has changed, and again at times.
func (m *Machine) publish(now time.Time) {
	if m.pod == nil || !m.read || (m.phase == Reading && m.unproved()) || m.unasked(now) {
		return
	}
	status, waiting := m.status(now), m.waiting()
	var w messages.Reason
	if waiting != nil {
		w = *waiting
		if w.Since.IsZero() {
			w.Since = now
			if was := m.waited; was.Container == w.Container && was.Volume == w.Volume && was.Code == w.Code {
				w.Since = was.Since
			}
		}
		shown := w
		waiting, w.RetryAt = &shown, time.Time{} // a retry alone is no news
	}
	if m.last != nil && m.phased == m.phase && m.desired.Generation == m.generation && w == m.waited &&
		equality.Semantic.DeepEqual(m.last, status) {
		if now.Before(m.reportedAt.Add(reportAgain)) {
			return
		}
		status = m.last
	}
	m.last, m.waited, m.generation, m.reportedAt, m.phased = status, w, m.desired.Generation, now, m.phase
	m.emit(Publish{Generation: m.generation, Status: status, Phase: m.phase, Waiting: waiting})
}

// status is the pod's status as the kubelet computes it. Unchanged conditions keep their transition times.
func (m *Machine) status(now time.Time) *v1.PodStatus {
	if m.desired != nil && m.desired.Final != nil {
		return m.desired.Final
	}
	s := &v1.PodStatus{
		QOSClass: translate.QOSClass(m.pod), ObservedGeneration: m.pod.Generation,
	}
	if !m.started.IsZero() {
		t := metav1.NewTime(m.started.Truncate(time.Second))
		s.StartTime = &t
	}
	for _, c := range m.containers {
		switch {
		case c.spec == nil:
		case c.ephemeral:
			s.EphemeralContainerStatuses = append(s.EphemeralContainerStatuses, m.containerStatus(c))
		case c.init:
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
	m.conditions(now, s)
	return s
}

// whole is what was told last of the resources of the pod as a whole, and of what.
type whole struct {
	of, has   *v1.Pod // what is allocated, and what is in force; nil: the same
	allocated v1.ResourceList
	resources *v1.ResourceRequirements
}

// wholeResources are those of the pod as a whole (KEP-5419): the requests that are allocated to it, and what it has. A pod that
// runs has what its cgroup was given, which knows of CPU and memory.
func (m *Machine) wholeResources(phase v1.PodPhase) (v1.ResourceList, *v1.ResourceRequirements) {
	if !m.set.PodLevelResize {
		return nil, nil
	}
	if last := m.desired.Last; m.cgroup.has == nil && last != nil && last.Phase == v1.PodRunning && last.Resources != nil {
		return translate.PodRequests(m.pod), last.Resources // its cgroup is not known yet
	}
	var has *v1.Pod
	if phase == v1.PodRunning {
		has = m.cgroup.has
	}
	if w := &m.whole; w.of != m.pod || w.has != has {
		*w = whole{of: m.pod, has: has, allocated: translate.PodRequests(m.pod)}
		w.resources = &v1.ResourceRequirements{Requests: w.allocated, Limits: translate.PodLimits(m.pod)}
		if has != nil {
			w.resources = groupResources(has)
		}
	}
	return m.whole.allocated, m.whole.resources
}

// groupResources are those that the cgroup of a pod was given.
func groupResources(pod *v1.Pod) *v1.ResourceRequirements {
	out := &v1.ResourceRequirements{Requests: v1.ResourceList{}, Limits: v1.ResourceList{}}
	if own := pod.Spec.Resources; own != nil {
		maps.Copy(out.Requests, own.Requests)
		maps.Copy(out.Limits, own.Limits)
	}
	requests, limits := translate.PodRequests(pod), translate.PodLimits(pod)
	for _, name := range translate.ComputeResources {
		if q, ok := requests[name]; ok {
			out.Requests[name] = q
		}
		if q, ok := limits[name]; ok && (translate.LimitsPod(pod, name) || translate.QOSClass(pod) == v1.PodQOSGuaranteed) {
			out.Limits[name] = q
		}
	}
	return out
}

func (m *Machine) addresses(s *v1.PodStatus) {
	var host []string
	switch {
	case !m.set.Unsettled():
		host = m.set.HostIPs()
	case m.pod.Spec.HostNetwork:
		return
	}
	for i, ip := range host {
		if i == 0 {
			s.HostIP = ip
		}
		s.HostIPs = append(s.HostIPs, v1.HostIP{IP: ip})
	}
	for i, ip := range m.addressesOf() {
		if i == 0 {
			s.PodIP = ip
		}
		s.PodIPs = append(s.PodIPs, v1.PodIP{IP: ip})
	}
}

// addressesOf are the pod's addresses for its status: the node's on the host's network; else the sandbox's, and those of the
// last one where there is none, since others still ask where a pod that has ended was.
func (m *Machine) addressesOf() []string {
	if m.pod.Spec.HostNetwork {
		return m.set.HostIPs()
	}
	return m.sandboxes.lastIPs
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
	current := m.sandboxes.current()
	switch {
	case current == nil:
		return nil
	case m.pod.Spec.HostNetwork:
		return m.set.HostIPs()
	default:
		return current.IPs
	}
}
