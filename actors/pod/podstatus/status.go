// Package podstatus computes the status of a pod from the state of its machine, in the kubelet's wording, on which clients
// depend.
package podstatus

import (
	"cmp"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/actors/pod/known"
	"github.com/playlet-dev/playlet/actors/pod/resources"
	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
)

// Pod is the input of a status.
type Pod struct {
	*known.State
	Reported   *v1.PodStatus // the last reported status; nil: none
	Now        time.Time
	Live       bool             // the pod should run
	Unsure     bool             // an unknown start may be in progress, or claims are in use
	Over       bool             // none of its containers runs any more, for good
	Mounted    bool             // its volumes are mounted
	Group      *v1.Pod          // the pod in the size that its cgroup got last; nil: unknown
	Resizing   *messages.Reason // the progress of a resize; nil: none
	Restarting bool             // containers of an earlier round are being ended
	// Hold returns the reason that keeps a container from starting, or nil.
	Hold func(*known.Container) *messages.Reason
}

// Status returns the pod's status as the kubelet computes it. Unchanged conditions keep their transition times.
func (p *Pod) Status() *v1.PodStatus {
	s := &v1.PodStatus{
		QOSClass: translate.QOSClass(p.Pod), ObservedGeneration: p.Pod.Generation,
	}
	if !p.Started.IsZero() {
		t := metav1.NewTime(p.ReportedStart())
		s.StartTime = &t
	}
	for _, c := range p.Containers {
		switch {
		case c.Spec == nil:
		case c.Ephemeral:
			s.EphemeralContainerStatuses = append(s.EphemeralContainerStatuses, p.containerStatus(c))
		case c.Init:
			s.InitContainerStatuses = append(s.InitContainerStatuses, p.containerStatus(c))
		default:
			s.ContainerStatuses = append(s.ContainerStatuses, p.containerStatus(c))
		}
	}
	shareLastWords(s)
	p.settlePhase(s)
	p.settleEnd(s)
	s.AllocatedResources, s.Resources = p.wholeResources(s.Phase)
	p.addresses(s)
	p.conditions(s)
	return s
}

// lastWordsBytes bounds the termination messages of all containers of a pod in its status, in equal shares
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
					end.Message = strings.ToValidUTF8(end.Message[:share], "") // the cut may split a character
				}
			}
		}
	}
}

// wholeResources returns the requests allocated to the pod as a whole and its resources in effect (KEP-5419). A running pod has
// the resources of its cgroup, CPU and memory.
func (p *Pod) wholeResources(phase v1.PodPhase) (v1.ResourceList, *v1.ResourceRequirements) {
	if !p.Set.PodLevelResize {
		return nil, nil
	}
	requests := translate.PodRequests(p.Pod)
	switch last := p.Wanted.Last; {
	case p.Group == nil && last != nil && last.Phase == v1.PodRunning && last.Resources != nil:
		return requests, last.Resources // its cgroup is not known yet
	case p.Group != nil && phase == v1.PodRunning:
		return requests, resources.OfCgroup(p.Group)
	}
	return requests, &v1.ResourceRequirements{Requests: requests, Limits: translate.PodLimits(p.Pod)}
}

// addresses adds the pod's addresses and the node's. On the host's network they are the same. Otherwise the pod has the addresses
// of its sandbox, or of the last one, since clients still look up where an ended pod was.
func (p *Pod) addresses(s *v1.PodStatus) {
	var host []string
	if !p.Set.Unsettled() {
		host = p.Set.HostIPs()
	}
	for _, ip := range host {
		s.HostIP = cmp.Or(s.HostIP, ip)
		s.HostIPs = append(s.HostIPs, v1.HostIP{IP: ip})
	}
	own := p.Sandboxes.LastIPs
	if p.Pod.Spec.HostNetwork {
		own = host
	}
	for _, ip := range own {
		s.PodIP = cmp.Or(s.PodIP, ip)
		s.PodIPs = append(s.PodIPs, v1.PodIP{IP: ip})
	}
}
