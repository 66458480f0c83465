package explain

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
)

const anotherTry = "another try"

// reason is the finding on a reason for which the pod waits.
func (v view) reason(r messages.Reason) Finding {
	f := Finding{Code: r.Code, Container: r.Container, Since: r.Since, Tries: r.Tries, LastError: cmp.Or(r.Cause.Text, r.Message),
		NextTry: r.RetryAt, WaitsFor: anotherTry}
	why := r.Cause
	why.Text = f.LastError
	said := short(why.Text)
	switch r.Code {
	case messages.ReasonErrImagePull, messages.ReasonImagePullBackOff, messages.ReasonRegistryUnavailable,
		messages.ReasonErrImageNeverPull, messages.ReasonInvalidImageName, messages.ReasonImageInspectError,
		messages.ReasonPulling, messages.ReasonPullQueued:
		v.image(&f, r, why)
	case messages.ReasonFailedMount:
		f.Cause, f.Remedy = v.volume(r, why)
	case messages.ReasonPermissionChange:
		f.Cause = "containers wait for volume " + r.Volume + ": its files are being given to the pod's fsGroup"
		f.WaitsFor, f.NextTry, f.Tries = "the last file", time.Time{}, 0
		f.Remedy = "set fsGroupChangePolicy: OnRootMismatch where the files have the group already"
	case messages.ReasonCreateConfig:
		f.Cause, f.Remedy = v.needs(why, v.called(r.Container), v.called(r.Container)+" cannot be created: ")
	case messages.ReasonCreateContainer, messages.ReasonRunContainer, messages.ReasonStartError:
		v.start(&f, why)
	case messages.ReasonCrashLoopBackOff:
		v.crash(&f, r)
	case messages.ReasonUnhealthy:
		v.probe(&f, r.Probe, said)
	case messages.ReasonKilling:
		v.killing(&f, r)
	case messages.ReasonContainerCreating: // the message names the parts that are missing
		f.Cause, f.WaitsFor, f.LastError = "the pod is being prepared, and waits for "+r.Message, r.Message, ""
		f.Remedy = "see playlet trace for the step that takes long, and the runtime's log"
	default:
		v.ofPod(&f, r, why)
	}
	if r.Permanent {
		f.WaitsFor = "a changed pod; retrying will not help"
	}
	return f
}

// plain lists the codes with a self-explanatory message: the awaited condition, and the remedy.
var plain = map[string]struct{ waitsFor, remedy string }{
	messages.ReasonAgentStarting:     {"the agent's start", ""},
	messages.ReasonNodeUnknown:       {"the Node object", "check that the API server can be reached from this node"},
	messages.ReasonPreempting:        {"the end of other pods", ""},
	messages.ReasonAllocating:        {"the CPU manager and device plugins", "see the log of the pod's device plugin"},
	messages.ReasonPredecessorEnding: {"the end of that pod", ""},
	messages.ReasonPredecessorFound:  {"every source to report its pods", "see playlet explain node"},
	messages.ReasonNameTaken:         {"a free name", "remove or rename one of the two"},
	messages.ReasonUnsupported:       {"a pod without these fields", "remove these fields, or run the pod on another node"},
	messages.ReasonRestartingAll:     {"the end of its containers", ""},
	messages.ReasonUnmounting:        {"the end of the unmounts", "see what uses the volumes' mounts, with fuser -m or lsof"},
	messages.ReasonAwaitDrivers:      {"the DRA drivers", "see the logs of the drivers"},
	messages.ReasonRemoving:          {"the runtime and the disk", ""},
	messages.ReasonFinalizers: {"the owners of the finalizers",
		"have their owners finish, or remove them with kubectl edit"},
	messages.ReasonRuntimeUnavailable: {"the container runtime", "start the container runtime; see its log and playlet doctor"},
	messages.ReasonNetworkNotReady:    {"the runtime's network", "install a network (CNI) for the runtime; see playlet doctor"},
}

func (v view) ofPod(f *Finding, r messages.Reason, why messages.Cause) {
	said := short(why.Text)
	if p, ok := plain[r.Code]; ok {
		f.Cause, f.WaitsFor, f.Remedy = said, p.waitsFor, p.remedy
		if r.Code == messages.ReasonRuntimeUnavailable {
			f.Cause = "the container runtime does not answer: " + said
		}
		if s, ok := ofWaits[why.Code]; ok && r.Code == messages.ReasonUnmounting {
			_, f.Remedy = s.about(why)
		}
		return
	}
	switch r.Code {
	case messages.ReasonCreateSandbox:
		f.Cause, f.Remedy = put(ofSandboxes, why, sentence{"the pod's sandbox cannot be created: {text}",
			"see the runtime's log, and playlet doctor"})
	case messages.ReasonStopSandbox:
		f.Cause = "the runtime cannot stop the pod's sandbox: " + said
		f.Remedy = "see the runtime's log; often a CNI plugin is missing or fails"
	case messages.ReasonFailedRemove:
		f.Cause, f.Remedy = "the runtime cannot remove the ended pod's sandbox or containers: "+said, "see the runtime's log"
	case messages.ReasonPrepareClaims, messages.ReasonReleaseClaims:
		f.Cause, f.Remedy = v.claims(r.Code, why)
	case messages.ReasonCreatePodContainer:
		f.Cause, f.Remedy = "the pod's cgroup cannot be created: "+said, "see playlet doctor"
	default:
		f.Cause, f.WaitsFor, f.Remedy = refused(r.Code, why)
	}
}

// awaited maps causes of refusals to the condition that ends them.
var awaited = map[messages.CauseCode]string{
	messages.CauseNoCPUs: "the end of other pods", messages.CauseNoDevicePlugin: "the device plugin",
	messages.CauseNoDevices: "the end of other pods, or other devices", messages.CauseNoMemory: "the end of other pods",
	messages.CauseNoAffinity: "the end of other pods",
}

// refused explains a refusal of admission, for good or for as long as it lasts, and a pod that the node ended.
func refused(code string, why messages.Cause) (cause, waitsFor, remedy string) {
	waitsFor = cmp.Or(awaited[why.Code], "the node to change")
	if why.Code == messages.CauseShortage {
		waitsFor = "the end of other pods"
		switch v1.ResourceName(why.Name) {
		case v1.ResourcePods:
			_, remedy = ofRefusals[why.Code].about(why)
			return "the node already has its maximum number of pods (" + why.Detail + ")", waitsFor, remedy
		case v1.ResourceCPU:
			why.Name, why.Detail = "CPU", "in millicores, "+why.Detail
		}
	}
	cause, remedy = put(ofRefusals, why, sentence{cmp.Or(strings.TrimSuffix(short(why.Text), "."), code), ""})
	switch code {
	case "NodeAffinity":
		waitsFor, remedy = "other labels of the node", "label the node, or correct the pod's nodeSelector or affinity"
	case "TaintToleration":
		waitsFor, remedy = "the end of the taint", "remove the taint from the node, or give the pod a toleration"
	case "NodePorts":
		waitsFor, remedy = "the end of that pod", "choose another hostPort, or remove the pod that has it"
	case "SysctlForbidden":
		remedy = "allow it with --allowed-unsafe-sysctls, or remove it from the pod"
	case messages.EventEvicted:
		if why.Code == messages.CausePressure {
			break
		}
		cause, waitsFor = "the node evicted it to protect itself: "+cause, ""
		remedy = "have it use less, or request what it uses; see playlet explain node"
		if why.Code == messages.CauseLimitExceeded {
			remedy = "have it use less, or raise the limit"
		}
	}
	return cause, waitsFor, remedy
}

func (v view) image(f *Finding, r messages.Reason, why messages.Cause) {
	name := ""
	if spec := v.spec(r.Container); spec != nil {
		name = spec.Image
	}
	whose, policy := v.about(r.Container, ": image "+name+" "), "imagePullPolicy"
	for i := range v.pod.Spec.Volumes {
		if volume := &v.pod.Spec.Volumes[i]; volume.Name == r.Volume && volume.Image != nil {
			name = volume.Image.Reference
			whose, policy = v.called(r.Container)+", volume "+volume.Name+": image "+name+" ", "the volume's pullPolicy"
		}
	}
	switch r.Code {
	case messages.ReasonErrImageNeverPull:
		f.Cause = whose + "is not on this node, and " + policy + " is Never"
		f.Remedy = "bring the image to the node, or change " + policy
	case messages.ReasonInvalidImageName:
		f.Cause, f.Remedy = whose+"is not a valid name", "correct the image's name"
	case messages.ReasonImageInspectError:
		f.Cause, f.Remedy = whose+"cannot be looked up in the runtime: "+short(why.Text), "see the runtime's log"
	default:
		means, remedy := put(ofImages, why, sentence{"cannot be pulled: {text}",
			"check that the registry is reachable and has the image"})
		f.Cause, f.Remedy = whose+means, remedy
	}
	if r.Code == messages.ReasonPulling || r.Code == messages.ReasonPullQueued {
		f.WaitsFor, f.LastError = "the end of the pull", r.Before.Text
	}
}

// Pull returns the reason why a manual pull of an image failed, with the runtime's message, and its remedy.
func Pull(image string, r messages.Reason) (cause, remedy string) {
	why := r.Cause
	means, remedy := put(ofImages, why, sentence{"cannot be pulled: {text}",
		"check that the registry is reachable and has the image"})
	if why.Code == messages.CauseUnauthorized {
		remedy = "correct the image's name, or give the node credentials for the registry"
	}
	if r.Code == messages.ReasonInvalidImageName {
		return "image " + image + " is not a valid name", "correct the image's name"
	}
	cause = "image " + image + " " + means
	if text := short(why.Text); text != "" && !strings.Contains(cause, text) {
		cause += " (" + text + ")"
	}
	return cause, remedy
}

func (v view) volume(r messages.Reason, why messages.Cause) (cause, remedy string) {
	name := r.Volume
	if name == "" {
		return "the pod's folder cannot be created: " + short(why.Text), "check the node's disk"
	}
	if s, ok := ofWaits[why.Code]; ok {
		cause, remedy = s.about(why)
		return "containers wait for volume " + name + ": " + cause, remedy
	}
	cause, remedy = v.needs(why, "volume "+name, "volume "+name+" cannot be mounted: ")
	if remedy = cmp.Or(remedy, ofVolumes[why.Code]); remedy == "" && !r.Permanent {
		remedy = "fix the cause named in the message; the mount is retried automatically"
	}
	return cause, remedy
}

// claims explains why a pod's ResourceClaims cannot be prepared, or be unprepared at its end.
func (v view) claims(code string, why messages.Cause) (cause, remedy string) {
	if _, ofObject := ofObjects[why.Code]; ofObject {
		return v.needs(why, "the pod", "")
	}
	done := "prepared"
	if code == messages.ReasonReleaseClaims {
		done = "unprepared"
	}
	cause, remedy = put(ofClaims, why, sentence{"{text}", "see the logs of the DRA drivers"})
	if code == messages.ReasonReleaseClaims && why.Code == messages.CauseClaimDriverAbsent {
		remedy = "start the driver's pod on this node again; if the driver is gone for good, stop the agent once no other pod " +
			"with claims runs, remove dra_manager_state in --root-dir, and start the agent"
	}
	return "the pod's ResourceClaims cannot be " + done + ": " + cause, remedy
}

// needs explains the lack of an object that a container or volume refers to. Of another cause it is the text after otherwise.
func (v view) needs(why messages.Cause, needer, otherwise string) (cause, remedy string) {
	s, ok := ofObjects[why.Code]
	if !ok {
		return otherwise + short(why.Text), ""
	}
	cause, remedy = s.about(why)
	return cause + "; it is needed by " + needer, cmp.Or(v.supply(why), remedy)
}

// supply returns the remedy for an absent ConfigMap or Secret, where this pod comes from, or "".
func (v view) supply(why messages.Cause) string {
	create := map[string]string{"ConfigMap": "configmap", "Secret": "secret generic"}[why.Kind]
	if why.Code != messages.CauseObjectAbsent || create == "" {
		return ""
	}
	if v.source == messages.APIServer {
		namespace, name, _ := strings.Cut(why.Name, "/")
		return fmt.Sprintf("kubectl create %s %s -n %s --from-file=FILE, or mark the reference optional", create, name, namespace)
	}
	return "submit it (playlet run -f FILE) or put it into the folder of --object-dir, or mark the reference optional"
}

func (v view) start(f *Finding, why messages.Cause) {
	if why.Code == messages.CauseInitEnded && v.fillsMemory() {
		why.Code = messages.CauseStartOutOfMemory
	}
	if why.Name != "" {
		why.Name = ` "` + why.Name + `"`
	}
	means, remedy := put(ofStarts, why, sentence{" cannot be started: {text}", "see the runtime's log"})
	f.Cause, f.Remedy = v.about(f.Container, means), remedy
}

// fillsMemory reports whether the pod's volumes in memory may take most of its memory limit. Their files stay when a container
// restarts, and the kernel then kills the first process of the next one.
func (v view) fillsMemory() bool {
	if !translate.LimitsPod(v.pod, v1.ResourceMemory) {
		return false
	}
	limits := translate.PodLimits(v.pod)
	limit, room := limits.Memory().Value(), int64(0)
	for _, volume := range v.pod.Spec.Volumes {
		if e := volume.EmptyDir; e == nil || e.Medium != v1.StorageMediumMemory {
			continue
		} else if e.SizeLimit == nil || e.SizeLimit.IsZero() {
			room += limit // as the agent mounts it
		} else {
			room += e.SizeLimit.Value()
		}
	}
	return room >= limit/10*9 && room > 0
}

func (v view) probe(f *Finding, kind messages.ProbeKind, said string) {
	f.Cause = v.about(f.Container, fmt.Sprintf(": its %s probe fails: %s", kind, said))
	f.WaitsFor = fmt.Sprintf("a success of the %s probe", kind)
	f.Remedy = fmt.Sprintf("make the application answer the probe, or correct %sProbe; %s", kind, v.logs(f.Container, false))
	spec := v.spec(f.Container)
	if spec == nil {
		return
	}
	if p := messages.Probe(spec, kind); p != nil {
		f.WaitsFor += fmt.Sprintf(", which runs every %ds", max(p.PeriodSeconds, 1))
		if kind != messages.Readiness {
			f.WaitsFor += fmt.Sprintf("; after %d failures in a row the container is killed", max(p.FailureThreshold, 1))
		}
	}
}

func (v view) killing(f *Finding, r messages.Reason) {
	f.Until, f.NextTry, f.LastError, f.WaitsFor = r.RetryAt, time.Time{}, r.Cause.Text, "the container's end"
	if r.Probe != "" {
		v.probeFailed(f, r)
		return
	}
	switch {
	case r.Cause.Code == messages.CausePostStart:
		v.start(f, r.Cause)
		return
	case r.Cause.Text != "":
		f.Cause, f.Remedy = "the runtime cannot stop "+v.called(r.Container)+": "+short(r.Cause.Text), "see the runtime's log"
		return
	}
	grace := "its grace period"
	if d := r.RetryAt.Sub(r.Since).Round(time.Second); d > 0 && !r.Since.IsZero() {
		grace = fmt.Sprintf("up to %.0fs", d.Seconds())
	}
	f.Cause = v.called(r.Container) + " has " + grace + " to stop"
	f.Remedy = "make the application exit on its stop signal, or " + v.hurry()
	if spec := v.spec(r.Container); spec != nil && spec.Lifecycle != nil && spec.Lifecycle.PreStop != nil {
		f.Cause = v.called(r.Container) + " has " + grace + " to run its pre-stop hook (" + hook(spec.Lifecycle.PreStop) +
			") and to stop"
		f.Remedy = "make the pre-stop hook shorter, " + f.Remedy
	}
}

// hurry is how to have the container end sooner. The grace period of a pod that is ending is no longer the manifest's.
func (v view) hurry() string {
	switch {
	case !v.ending || v.source == "":
		return "shorten terminationGracePeriodSeconds"
	case v.source == messages.APIServer:
		return fmt.Sprintf("kubectl delete pod -n %s %s --grace-period=1", v.pod.Namespace, v.pod.Name)
	default:
		return fmt.Sprintf("playlet rm -n %s %s --force", v.pod.Namespace, v.pod.Name)
	}
}

func hook(h *v1.LifecycleHandler) string {
	switch {
	case h.Exec != nil:
		return short(strings.Join(h.Exec.Command, " "))
	case h.HTTPGet != nil:
		return "GET " + h.HTTPGet.Path
	case h.Sleep != nil:
		return fmt.Sprintf("sleep %ds", h.Sleep.Seconds)
	}
	return "no action"
}
