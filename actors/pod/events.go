package pod

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	utilnet "k8s.io/utils/net"

	"github.com/playlet-dev/playlet/actors/internal/explain"
	"github.com/playlet-dev/playlet/actors/internal/finalstatus"
	"github.com/playlet-dev/playlet/actors/pod/known"
	"github.com/playlet-dev/playlet/messages"
)

// record sends an Event if they are enabled. Reasons and messages are the kubelet's, since clients match them. Each Event reports
// an occurrence, not a repeated message about it.
func (m *Machine) record(container, kind, reason, format string, args ...any) {
	if m.Set.Events && m.Pod != nil {
		event := messages.PodEvent(m.Pod, container, kind, reason, fmt.Sprintf(format, args...), m.now)
		m.emit(Tell{messages.Events, event})
	}
}

// warn sends an Event about a wait or a failure: in Kubernetes' terms, and with the sentence of "playlet pods".
func (m *Machine) warn(container, reason string, r messages.Reason, format string, args ...any) {
	m.explained(container, v1.EventTypeWarning, reason, r, format, args...)
}

func (m *Machine) explained(container, kind, reason string, r messages.Reason, format string, args ...any) {
	if m.Set.Events && m.Pod != nil {
		m.record(container, kind, reason, "%s", explain.Event(fmt.Sprintf(format, args...), m.sentence(r)))
	}
}

// sentence returns the text of "playlet pods" while the pod waits for this.
func (m *Machine) sentence(r messages.Reason) string {
	s := explain.Waits(m.Pod, m.status(), r)
	if v := m.Verdict; v != nil && v.Reason != "" && r.Code == messages.ReasonKilling {
		s = explain.Waits(m.Pod, m.status(), messages.Reason{Code: v.Reason, Message: v.Message, Cause: v.Cause}) + ": " + s
	}
	if m.ending != nil {
		s = explain.Ending(m.ending.Reason) + ": " + s
	}
	return s
}

func (m *Machine) recordPulling(c *known.Container, v messages.ImageAwaited) {
	if v.Reason.Code != messages.ReasonPulling || v.Again || c.Image.Pulling {
		return
	}
	c.Image.Pulling = true
	m.record(c.Name, v1.EventTypeNormal, messages.EventPulling, "Pulling image %q", v.Image)
}

func (m *Machine) recordPulled(c *known.Container, v messages.ImagePulled) {
	c.Image.Pulling = false
	switch {
	case v.Again || c.Image.Ref == v.Ref:
	case v.Pulled:
		m.record(c.Name, v1.EventTypeNormal, messages.EventPulled,
			"Successfully pulled image %q in %v (%v including waiting). Image size: %d bytes.",
			v.Image, v.Took.Truncate(time.Millisecond), v.Waited.Truncate(time.Millisecond), v.Size)
	default:
		m.record(c.Name, v1.EventTypeNormal, messages.EventPulled, "Container image %q already present on machine", v.Image)
	}
}

// recordImageFailed records the cause of a missing image and, like the kubelet, the container's wait for it. An unreachable
// runtime concerns the node, and is not recorded here.
func (m *Machine) recordImageFailed(c *known.Container, v messages.ImageFailed) {
	r := v.Reason
	if v.Again || (c.Image.Reason != nil && same(*c.Image.Reason, r)) {
		return
	}
	c.Image.Pulling = false
	warn := func(reason, format string, args ...any) { m.warn(c.Name, reason, r, format, args...) }
	switch r.Code {
	case messages.ReasonRuntimeUnavailable:
		return
	case messages.ReasonImagePullBackOff:
		m.explained(c.Name, v1.EventTypeNormal, messages.EventBackOff, r, "Back-off pulling image %q", v.Image)
	case messages.ReasonErrImageNeverPull:
		warn(messages.EventErrImageNeverPull, "Container image %q is not present with pull policy of Never", v.Image)
	case messages.ReasonInvalidImageName:
		warn(messages.EventInspectFailed, "Failed to apply default image tag %q: %s", v.Image, r.Message)
	case messages.ReasonImageInspectError:
		warn(messages.EventInspectFailed, "Failed to inspect image %q: %s", v.Image, r.Cause.Text)
	default:
		if words := fmt.Sprintf("Failed to pull image %q: %s", v.Image, r.Cause.Text); m.Set.Events && m.Pod != nil {
			sentence := strings.TrimSuffix(m.sentence(r), ": "+r.Cause.Text) // which the words end with
			m.record(c.Name, v1.EventTypeWarning, messages.EventFailed, "%s", explain.Event(words, sentence))
		}
	}
	warn(messages.EventFailed, "Error: %s", r.Code)
}

// recordBackOff records that a container is held back after its end, once for each end. Ends before this life of the actor were
// recorded then.
func (m *Machine) recordBackOff(c *known.Container) {
	f, why := c.Exited(), m.starts().Hold(c)
	if f == nil || why == nil || c.Replace || f.Held || f.EndedAt.Before(m.born) {
		return
	}
	f.Held = true
	m.warn(c.Name, messages.EventBackOff, *why, "Back-off restarting failed container %s in pod %s_%s(%s)",
		c.Name, m.Pod.Name, m.Pod.Namespace, m.uid)
}

// recordEnd records that a container has failed for good. Kubernetes has no Event for that, and users look for the cause of a
// failure among the Events.
func (m *Machine) recordEnd(c *known.Container, f messages.ContainerFact) {
	if !m.live() || m.Pod == nil || c.Spec == nil || f.ExitCode == 0 || c.Verdict(m.Pod, &f) == messages.ExitRestarts {
		return
	}
	how := explain.Ended(m.Pod, c.Name, finalstatus.Terminated(&f, "").Terminated)
	m.record(c.Name, v1.EventTypeWarning, messages.EventFailed, "%s",
		explain.Event("Error: "+cmp.Or(f.Reason, messages.ReasonError), how))
}

func (m *Machine) recordMount(v messages.VolumesFailed) {
	if same(m.volumes.failed[v.Volume], v.Reason) {
		return
	}
	if m.volumes.failed == nil {
		m.volumes.failed = map[string]messages.Reason{}
	}
	m.volumes.failed[v.Volume] = v.Reason
	said := cmp.Or(v.Reason.Cause.Text, v.Reason.Message)
	if v.Reason.Code == messages.ReasonPermissionChange {
		m.warn("", messages.EventPermissionChange, v.Reason, "%s", said)
		return
	}
	if v.Volume == "" {
		m.warn("", messages.EventFailed, v.Reason, "error making pod data directories: %s", said)
		return
	}
	if v.Device {
		m.warn("", messages.EventFailedMap, v.Reason, "MapVolume.SetUpDevice failed for volume %q : %s", v.Volume, said)
		return
	}
	m.warn("", messages.EventFailedMount, v.Reason, "MountVolume.SetUp failed for volume %q : %s", v.Volume, said)
}

// same reports whether two reasons describe the same failure.
func same(a, b messages.Reason) bool {
	return a.Code == b.Code && a.Message == b.Message && a.RetryAt.Equal(b.RetryAt)
}

// recordSandbox records that a sandbox could not be created, unless the pod is ending.
func (m *Machine) recordSandbox(r messages.Reason) {
	if m.live() {
		m.warn("", messages.EventFailedSandbox, r, "Failed to create pod sandbox: %s", cmp.Or(r.Cause.Text, r.Message))
	}
}

// recordChanged records, once, that the pod's sandbox has to be replaced.
func (m *Machine) recordChanged() {
	if len(m.Sandboxes.All) > 0 && !m.sandboxing.replacementReported {
		m.sandboxing.replacementReported = true
		m.record("", v1.EventTypeNormal, messages.EventSandboxChanged, "Pod sandbox changed, it will be killed and re-created.")
	}
}

// recordNetwork records, once for each reason, that the node has no network for the pod's sandbox.
func (m *Machine) recordNetwork() {
	var why messages.Reason
	if m.Wanted.NoNetwork != nil {
		why = *m.Wanted.NoNetwork
	}
	if why.Message != "" && why.Message != m.sandboxing.unconnected {
		m.warn("", messages.EventNetworkNotReady, why, "%s", why.Message)
	}
	m.sandboxing.unconnected = why.Message
}

// recordVerdict records the Event of a verdict that has one.
func (m *Machine) recordVerdict() {
	v := m.Verdict
	switch {
	case v == nil:
	case v.Reason == messages.ReasonDeadlineExceeded:
		m.explained("", v1.EventTypeNormal, messages.EventDeadlineExceeded, messages.Reason{Code: v.Reason, Message: v.Message},
			"Pod was active on the node longer than the specified deadline")
	case v.Reason == messages.ReasonAttachLimit:
		m.warn("", v.Reason, messages.Reason{Code: v.Reason, Message: v.Message, Cause: v.Cause}, "%s", v.Message)
	}
}

// recordFamily records that the node's first address is of another family than in the pod's last status. A cloud provider has
// chosen that address. On the host's network, the addresses of the pod keep the first family.
func (m *Machine) recordFamily(now *v1.PodStatus) {
	last := m.reported.Status
	if last == nil && m.Wanted != nil {
		last = m.Wanted.Last
	}
	if last == nil || now == nil || last.HostIP == "" || now.HostIP == "" {
		return
	}
	if family := utilnet.IPFamilyOfString(now.HostIP); family != utilnet.IPFamilyOfString(last.HostIP) {
		m.record("", v1.EventTypeWarning, messages.EventFamilyMismatch,
			"the node's first address was %s and is %s, an IPv%s address that the cloud provider chose; "+
				"--node-ip keeps the other family",
			last.HostIP, now.HostIP, family)
	}
}
