package pod

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/pod/work"
	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
)

// recordedTooOften returns a container with more back-off Events than ends, or "".
func recordedTooOften(w *world) string {
	sent := map[string]int{}
	for _, r := range w.records {
		c := containerOf(r)
		if r.Reason == messages.EventBackOff {
			sent[c]++
		}
		if sent[c] > w.ends[c] {
			return c
		}
	}
	return ""
}

// said returns Events as "container Reason: message".
func said(records []messages.RecordEvent) (out []string) {
	for _, r := range records {
		out = append(out, strings.TrimSpace(containerOf(r)+" "+r.Reason+": "+r.Message))
	}
	return out
}

// containerOf returns the container that an Event is about, or "" for the pod.
func containerOf(r messages.RecordEvent) string {
	_, name, _ := strings.Cut(strings.TrimSuffix(r.Object.FieldPath, "}"), "{")
	return name
}

func (a *alone) sameEvents(t *testing.T, what string, want ...string) {
	t.Helper()
	if got := said(sentOf[messages.RecordEvent](a.take())); !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func TestTheEventsOfAnOrdinaryLife(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, 0, 1))
	w.exit = func(_ string, attempt uint32) (int32, bool) { return 1, attempt < 3 }
	w.step(nil)
	w.settle()
	check(t, w)
	start := []string{`c0 Pulling: Pulling image "image"`, `c0 Pulled: Container image "image" already present on machine`}
	held := "c0 BackOff: Back-off restarting failed container c0 in pod web_default(u1); container c0 exited with code 1"
	want := slices.Concat(start, start, []string{held}, start, []string{held}, start)
	if got := said(w.records); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	w.records = nil
	w.restart()
	w.settle()
	if len(w.records) > 0 {
		t.Errorf("an actor that was restarted says %q", said(w.records))
	}
}

// A pod without a network records that once, and again for another reason.
func TestAMissingNetworkIsReportedOnce(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, 0, 1))
	w.offline = &messages.Reason{Code: messages.ReasonNetworkNotReady, Message: "network is not ready: none"}
	w.step(nil)
	w.settle()
	w.send(w.desired())
	w.settle()
	w.offline = &messages.Reason{Code: messages.ReasonNetworkNotReady, Message: "network is not ready: another"}
	w.send(w.desired())
	w.settle()
	w.offline = nil
	w.send(w.desired())
	w.settle()
	check(t, w)
	got := slices.DeleteFunc(said(w.records), func(s string) bool { return !strings.HasPrefix(s, "NetworkNotReady") })
	if !slices.Equal(got, []string{"NetworkNotReady: network is not ready: none",
		"NetworkNotReady: network is not ready: another"}) {
		t.Errorf("%q", got)
	}
}

func TestABackOffIsReportedOnce(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, 0, 1))
	w.exit = func(_ string, attempt uint32) (int32, bool) { return 1, attempt < 3 }
	w.set.BackOffStep = func(f messages.ContainerFact) int { return int(f.Attempt) }
	w.step(nil)
	for len(w.records) == 0 || w.records[len(w.records)-1].Reason != messages.EventBackOff {
		w.live()
		if len(w.pending) == 0 {
			w.now = w.nextTime()
			w.step(nil)
			continue
		}
		m := w.pending[0]
		w.pending = w.pending[1:]
		w.step(m)
	}
	w.records = nil
	w.now = w.now.Add(time.Second)
	w.restart()
	for len(w.pending) > 0 {
		m := w.pending[0]
		w.pending = w.pending[1:]
		w.step(m)
	}
	if w.status.ContainerStatuses[0].State.Waiting == nil {
		t.Fatalf("it is not held back: %+v", w.status.ContainerStatuses[0])
	}
	if slices.ContainsFunc(w.records, func(r messages.RecordEvent) bool { return r.Reason == messages.EventBackOff }) {
		t.Errorf("it says %q", said(w.records))
	}
}

func TestTheEventsOfAnImage(t *testing.T) {
	a := newReady(testPod(v1.RestartPolicyAlways, 0, 1))
	a.take()
	key := messages.ImageKey{UID: "u1", Container: "c0"}
	pulling := messages.ImageAwaited{Key: key, Image: "image", Reason: messages.Reason{Code: messages.ReasonPulling}}
	again := pulling
	again.Again = true
	a.hears(messages.ImageAwaited{Key: key, Image: "image", Reason: messages.Reason{Code: messages.ReasonPullQueued}})
	a.sameEvents(t, "a place in the queue")
	a.hears(again)
	a.sameEvents(t, "an actor that was restarted during the pull")
	a.hears(pulling, pulling)
	a.sameEvents(t, "a pull", `c0 Pulling: Pulling image "image"`)
	failed := func(code, cause string, at time.Time) messages.ImageFailed {
		return messages.ImageFailed{Key: key, Image: "image",
			Reason: messages.Reason{Code: code, Message: "could not: " + cause, Cause: messages.Cause{Text: cause}, RetryAt: at}}
	}
	at, denied := a.now.Add(time.Minute), "; container c0: image image cannot be pulled: denied"
	a.hears(failed(messages.ReasonErrImagePull, "denied", at), failed(messages.ReasonErrImagePull, "denied", at))
	a.sameEvents(t, "a failure", `c0 Failed: Failed to pull image "image": denied`+strings.TrimSuffix(denied, ": denied"), "c0 Failed: Error: ErrImagePull"+denied)
	a.hears(failed(messages.ReasonImagePullBackOff, "denied", at), failed(messages.ReasonImagePullBackOff, "denied", at))
	a.sameEvents(t, "a back-off", `c0 BackOff: Back-off pulling image "image"`+denied, "c0 Failed: Error: ImagePullBackOff"+denied)
	a.hears(failed(messages.ReasonRuntimeUnavailable, "gone", at))
	a.sameEvents(t, "no runtime")
	a.hears(failed(messages.ReasonErrImageNeverPull, "", at))
	never := "; container c0: image image is not on this node, and imagePullPolicy is Never"
	a.sameEvents(t, "Never", `c0 ErrImageNeverPull: Container image "image" is not present with pull policy of Never`+never,
		"c0 Failed: Error: ErrImageNeverPull"+never)
	a.hears(failed(messages.ReasonImageInspectError, "no disk", at))
	look := "; container c0: image image cannot be looked up in the runtime: no disk"
	a.sameEvents(t, "a look", `c0 InspectFailed: Failed to inspect image "image": no disk`+look, "c0 Failed: Error: ImageInspectError"+look)
	a.hears(pulling, messages.ImagePulled{Key: key, Image: "image", Ref: "id", Pulled: true, Took: 1234567 * time.Microsecond,
		Waited: 3 * time.Second, Size: 42})
	a.sameEvents(t, "a pull", `c0 Pulling: Pulling image "image"`,
		`c0 Pulled: Successfully pulled image "image" in 1.234s (3s including waiting). Image size: 42 bytes.`)
	a.hears(messages.ImagePulled{Key: key, Image: "image", Ref: "id", Pulled: true})
	a.sameEvents(t, "told twice")
}

func TestTheEventsOfAPod(t *testing.T) {
	pod := testPod(v1.RestartPolicyAlways, 0, 1)
	pod.Spec.ActiveDeadlineSeconds = new(int64(3600))
	a := newAlone(pod)
	a.hears(messages.PodObserved{Facts: messages.PodFacts{UID: "u1", ReadAt: a.now}}, grouped(pod))
	a.take()
	mount := messages.VolumesFailed{UID: "u1", Volume: "data", Reason: messages.Reason{Code: messages.ReasonFailedMount, Message: `volume "data": no such thing`,
		Cause: messages.Cause{Text: "no such thing"}}}
	a.hears(mount, mount)
	a.sameEvents(t, "a mount", `FailedMount: MountVolume.SetUp failed for volume "data" : no such thing; volume data cannot be mounted: no such thing`)
	device := mount
	device.Volume, device.Device = "disk", true
	a.hears(device, device)
	a.sameEvents(t, "a device", `FailedMapVolume: MapVolume.SetUpDevice failed for volume "disk" : no such thing; volume disk cannot be mounted: no such thing`)
	mount.Reason.RetryAt = a.now
	quiet := mount
	quiet.Quiet, quiet.Reason.Message = true, "waits for others"
	a.hears(quiet)
	a.sameEvents(t, "a wait")
	a.hears(mount)
	a.sameEvents(t, "it failed again", `FailedMount: MountVolume.SetUp failed for volume "data" : no such thing; volume data cannot be mounted: no such thing`)
	a.hears(messages.VolumesFailed{UID: "u1", Volume: "data", Reason: messages.Reason{Code: messages.ReasonPermissionChange,
		Cause: messages.Cause{Text: "Setting volume ownership for u1/volumes/kind/data, processed 7 files"}}})
	a.sameEvents(t, "a change of owners", "VolumePermissionChangeInProgress: Setting volume ownership for u1/volumes/kind/data, "+
		"processed 7 files; containers wait for volume data: its files are being given to the pod's fsGroup")
	group := messages.PodCgroupFailed{UID: "u1", Reason: messages.Reason{Code: messages.ReasonCreatePodContainer,
		Message: "no cgroup"}}
	a.hears(group, group)
	a.sameEvents(t, "a cgroup", "FailedCreatePodContainer: unable to ensure pod container exists: no cgroup; the pod's cgroup cannot be created: no cgroup")
	a.hears(messages.VolumesMounted{UID: "u1"},
		work.SandboxStarted{Reason: messages.Reason{Code: messages.ReasonCreateSandbox, Message: "no network"}},
		work.SandboxStarted{Taken: true, Reason: messages.Reason{Message: "taken"}})
	a.sameEvents(t, "a sandbox", "FailedCreatePodSandBox: Failed to create pod sandbox: no network; the pod's sandbox cannot be created: no network")
	a.hears(work.SandboxStarted{Reason: messages.Reason{Code: messages.ReasonCreateSandbox,
		Cause: messages.CauseOf(&translate.ConfigError{Err: &translate.FQDNError{FQDN: "x.example"}})}})
	a.sameEvents(t, "an FQDN", "FailedCreatePodSandBox: Failed to create pod sandbox: failed to construct FQDN from pod hostname and cluster "+
		"domain, FQDN x.example has 9 characters, 64 are allowed; the pod's FQDN is too long for its hostname (setHostnameAsFQDN)")
	a.passes(time.Minute)
	a.hears(work.SandboxStarted{Fact: &messages.SandboxFact{ID: "s1", Ready: true, CreatedAt: a.now, IPs: []string{"10.88.0.2"}}})
	a.sameEvents(t, "a sandbox that is made")
	a.passes(time.Second)
	dead := []messages.SandboxFact{{ID: "s1", CreatedAt: a.now}}
	a.observes(dead)
	a.observes(dead)
	a.hears(work.SandboxStopped{ID: "s1"})
	a.sameEvents(t, "a sandbox that is lost", "SandboxChanged: Pod sandbox changed, it will be killed and re-created.")
	a.passes(time.Hour)
	a.passes(time.Second)
	a.sameEvents(t, "its time is over", "DeadlineExceeded: Pod was active on the node longer than the specified deadline; the pod was active for longer than its activeDeadlineSeconds (3600)")
}

// If a cloud provider changes the family of the node's first address, an Event of the pod names both addresses, once.
func TestEvents_FamilyOfTheNodesAddress(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, 0, 1))
	w.step(nil)
	w.settle()
	w.records = nil
	for range 2 {
		w.machine.Set.HostIPs = func() []string { return []string{"fd00::1", "10.0.0.1"} }
		w.send(w.desired())
		w.settle()
	}
	want := []string{"HostIPsIPFamilyMismatch: the node's first address was 10.0.0.1 and is fd00::1, an IPv6 address that the cloud " +
		"provider chose; --node-ip keeps the other family"}
	if got := said(w.records); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Without an API server no Events are sent.
func TestNoEventsOnAStandaloneNode(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, 0, 1))
	w.set.Events = false
	w.machine = NewMachine("u1", w.set)
	w.step(nil)
	w.settle()
	if len(w.records) > 0 {
		t.Errorf("it says %q", said(w.records))
	}
}

// Omitted parts of a pod's resolver configuration are reported with its sandbox.
func TestWhatIsLeftOutOfDNSIsReported(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, 0, 1))
	w.step(nil)
	w.settle()
	a := &alone{now: w.now, machine: w.machine}
	a.hears(work.SandboxStarted{Fact: &w.sandboxes[0], Warnings: []translate.DNSWarning{{Reason: "DNSConfigForming",
		Message: "100% too many"}}})
	a.sameEvents(t, "a sandbox", "DNSConfigForming: 100% too many")
}

// A pod fails if the node has no place for one of its volumes, and has not run. A pod that has run waits.
func TestPod_VolumeAttachmentLimit(t *testing.T) {
	full := messages.VolumesFailed{UID: "u1", Volume: "data", Reason: messages.Reason{Code: messages.ReasonFailedMount,
		Message: `volume "data": no place`, Cause: messages.Cause{Code: messages.CauseAttachLimit, Text: "no place"}}}
	pod := testPod(v1.RestartPolicyAlways, 0, 1)
	a := newAlone(pod)
	a.hears(messages.PodObserved{Facts: messages.PodFacts{UID: "u1", ReadAt: a.now}}, grouped(pod))
	a.take()
	a.hears(full)
	v := a.machine.Verdict
	const message = `Pod was rejected: Node has reached its volume attachment limit: volume "data": no place`
	if v == nil || v.Phase != v1.PodFailed || v.Reason != "VolumeAttachmentLimitExceeded" || v.Message != message {
		t.Fatalf("the verdict is %+v", v)
	}
	if a.machine.phase != Terminating {
		t.Errorf("the phase is %s", a.machine.phase)
	}
	events := said(sentOf[messages.RecordEvent](a.take()))
	if want := "VolumeAttachmentLimitExceeded: " + message; !slices.ContainsFunc(events, func(e string) bool {
		return strings.HasPrefix(e, want)
	}) {
		t.Errorf("the Events are %q, want one of %q", events, want)
	}
	w := newWorld(testPod(v1.RestartPolicyAlways, 0, 1))
	w.step(nil)
	w.settle()
	w.send(full)
	w.settle()
	if w.machine.Verdict != nil {
		t.Errorf("the verdict of a running pod is %+v", w.machine.Verdict)
	}
}
