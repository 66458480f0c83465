package explain

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/messages"
)

const anotherTry = "another try"

// reason is the finding on a reason for which the pod waits.
func (v view) reason(r messages.Reason) Finding {
	f := Finding{Code: r.Code, Container: r.Container, Since: r.Since, Tries: r.Tries, LastError: cmp.Or(r.Cause, r.Message),
		NextTry: r.RetryAt, WaitsFor: anotherTry}
	said := short(f.LastError)
	switch r.Code {
	case messages.ReasonErrImagePull, messages.ReasonImagePullBackOff, messages.ReasonRegistryUnavailable,
		messages.ReasonErrImageNeverPull, messages.ReasonInvalidImageName, messages.ReasonImageInspectError,
		messages.ReasonPulling, messages.ReasonPullQueued:
		v.image(&f, r)
	case messages.ReasonFailedMount:
		f.Cause, f.Remedy = volume(r.Volume, said)
	case messages.ReasonPermissionChange:
		f.Cause = "containers wait for volume " + r.Volume + ": all its files are being given to the pod's fsGroup"
		f.WaitsFor, f.NextTry, f.Tries = "the last file", time.Time{}, 0
		f.Remedy = "set fsGroupChangePolicy: OnRootMismatch where the files have the group already"
	case messages.ReasonCreateConfig:
		said = strings.TrimPrefix(said, v.pod.Namespace+"/"+v.pod.Name+"/"+r.Container+": ") // it is named before
		f.Cause, f.Remedy = needs(said, v.called(r.Container), v.called(r.Container)+" cannot be made: ")
	case messages.ReasonCreateContainer, messages.ReasonRunContainer, messages.ReasonStartError:
		v.start(&f, said)
	case messages.ReasonCrashLoopBackOff:
		v.crash(&f, r)
	case messages.ReasonUnhealthy:
		v.probe(&f, r.Probe, said)
	case messages.ReasonKilling:
		v.killing(&f, r)
	default:
		v.ofPod(&f, r, said)
	}
	if r.Permanent {
		f.WaitsFor = "a changed pod; trying again would not help"
	}
	return f
}

// plain are codes of which the message says it all: who is waited for, and what to do.
var plain = map[string]struct{ waitsFor, remedy string }{
	messages.ReasonAgentStarting:      {"the agent's start", ""},
	messages.ReasonNodeUnknown:        {"the Node object", "see that the API server can be reached from this node"},
	messages.ReasonPreempting:         {"the end of other pods", ""},
	messages.ReasonAllocating:         {"the device plugin", "see the device plugin's log"},
	messages.ReasonPredecessorEnding:  {"the end of that pod", ""},
	messages.ReasonPredecessorFound:   {"every source's word on which pods it wants", "see playlet explain node"},
	messages.ReasonNameTaken:          {"a free name", "remove or rename one of the two"},
	messages.ReasonUnsupported:        {"a pod without these fields", "take these fields out, or run the pod on another node"},
	messages.ReasonRestartingAll:      {"the end of its containers", ""},
	messages.ReasonUnmounting:         {"the end of the unmounts", "see what uses the volumes' mounts, with fuser -m or lsof"},
	messages.ReasonRemoving:           {"the runtime and the disk", ""},
	messages.ReasonFinalizers:         {"who set the finalizers", "have their owners finish, or remove them with kubectl edit"},
	messages.ReasonRuntimeUnavailable: {"the container runtime", "start the container runtime; see its log and playlet doctor"},
	messages.ReasonNetworkNotReady:    {"the runtime's network", "install a network (CNI) for the runtime; see playlet doctor"},
}

func (v view) ofPod(f *Finding, r messages.Reason, said string) {
	if p, ok := plain[r.Code]; ok {
		f.Cause, f.WaitsFor, f.Remedy = said, p.waitsFor, p.remedy
		if r.Code == messages.ReasonRuntimeUnavailable {
			f.Cause = "the container runtime does not answer: " + said
		}
		return
	}
	switch r.Code {
	case messages.ReasonCreateSandbox:
		means, remedy, known := meant(ofSandboxes, f.LastError)
		if !known {
			means, remedy = "the pod's sandbox cannot be made: "+said, "see the runtime's log, and playlet doctor"
		}
		f.Cause, f.Remedy = means, remedy
	case messages.ReasonStopSandbox:
		f.Cause = "the runtime cannot stop the pod's sandbox: " + said
		f.Remedy = "see the runtime's log; often a CNI plugin is missing or fails"
	case messages.ReasonFailedRemove:
		f.Cause, f.Remedy = "what the runtime has of the ended pod cannot be removed: "+said, "see the runtime's log"
	case messages.ReasonCreatePodContainer:
		f.Cause, f.Remedy = "the pod's cgroup cannot be made: "+said, "see playlet doctor"
	default:
		f.Cause, f.WaitsFor, f.Remedy = v.refused(r.Code, said)
	}
}

// refused explains a refusal of admission, for good or for as long as it lasts.
func (v view) refused(code, message string) (cause, waitsFor, remedy string) {
	cause, waitsFor = plainly(message), "the node to change"
	switch {
	case strings.HasPrefix(code, "OutOf"):
		waitsFor, remedy = "the end of other pods", "remove pods from this node, or ask for less"
	case code == "NodeAffinity":
		waitsFor, remedy = "other labels of the node", "label the node, or correct the pod's nodeSelector or affinity"
	case code == "TaintToleration":
		waitsFor, remedy = "the end of the taint", "remove the taint from the node, or give the pod a toleration"
	case code == "NodePorts":
		waitsFor, remedy = "the end of that pod", "choose another hostPort, or remove the pod that has it"
	case code == "SysctlForbidden":
		remedy = "allow it with --allowed-unsafe-sysctls, or take it out of the pod"
	case code == messages.EventEvicted && !strings.Contains(message, "The node had condition: "):
		cause = "the node ended it to protect itself: " + strings.TrimSpace(message)
		waitsFor, remedy = "", "have it use less, or request what it uses; see playlet explain node"
		if strings.Contains(message, "exceed") {
			remedy = "have it use less, or raise the limit"
		}
	case code == messages.EventEvicted:
		cause = "the node is under pressure and takes no such pod: " + strings.TrimPrefix(cause, "The node had condition: ")
		remedy = "free the resource; see playlet explain node"
	case message == "":
		cause = code
	}
	return cause, waitsFor, remedy
}

func (v view) image(f *Finding, r messages.Reason) {
	name := ""
	if spec := v.spec(r.Container); spec != nil {
		name = spec.Image
	}
	whose, policy := v.called(r.Container)+": image "+name+" ", "imagePullPolicy"
	for i := range v.pod.Spec.Volumes {
		if volume := &v.pod.Spec.Volumes[i]; volume.Name == r.Volume && volume.Image != nil {
			name = volume.Image.Reference
			whose, policy = v.called(r.Container)+", volume "+volume.Name+": image "+name+" ", "the volume's pullPolicy"
		}
	}
	means, remedy, known := meant(ofImages, f.LastError)
	switch r.Code {
	case messages.ReasonErrImageNeverPull:
		f.Cause = whose + "is not on this node, and " + policy + " is Never"
		f.Remedy = "bring the image to the node, or change " + policy
	case messages.ReasonInvalidImageName:
		f.Cause, f.Remedy = whose+"is not a valid name", "correct the image's name"
	case messages.ReasonImageInspectError:
		f.Cause, f.Remedy = whose+"cannot be looked up in the runtime: "+short(f.LastError), "see the runtime's log"
	case messages.ReasonPulling, messages.ReasonPullQueued:
		how, _, _ := strings.Cut(strings.TrimPrefix(r.Message, fmt.Sprintf("the image %q ", name)), "; before, ")
		f.Cause, f.WaitsFor, f.LastError = whose+short(how), "the end of the pull", r.Cause
	default:
		if !known {
			means, remedy = "cannot be pulled: "+short(f.LastError), "see that the registry has it and can be reached"
		}
		f.Cause, f.Remedy = whose+means, remedy
	}
}

func volume(name, said string) (cause, remedy string) {
	if name == "" {
		return "the pod's folder cannot be made: " + said, "see the node's disk"
	}
	cause, remedy = needs(said, "volume "+name, "volume "+name+" cannot be mounted: ")
	switch {
	case remedy != "":
	case strings.HasPrefix(said, "CSI driver ") && strings.HasSuffix(said, "is not registered on this node"):
		cause = "containers wait for volume " + name + ": " + said
		remedy = "see that the driver's pod runs on this node; it registers itself by a socket in plugins_registry"
	case strings.Contains(said, "is not attached to this node yet"), strings.Contains(said, "volumesInUse"):
		cause = "containers wait for volume " + name + ": " + said
		remedy = "see kubectl get volumeattachments, and the log of the driver's attacher"
	case strings.HasPrefix(said, "PersistentVolume"):
		cause = "containers wait for volume " + name + ": " + said
		remedy = "see kubectl describe of the claim, and the log of what makes its volumes"
	case strings.HasPrefix(said, "hostPath "):
		remedy = "make what the volume asks for on the node, or correct its path or type"
	case strings.Contains(said, "still being mounted"), strings.Contains(said, "hang"):
		remedy = "see what the mount hangs on: a server, a disk"
	default:
		remedy = "mend what the message says; the volume is tried again by itself"
	}
	return cause, remedy
}

// needs explains the lack of an object that something refers to; otherwise it is the words before what was said.
func needs(said, who, otherwise string) (cause, remedy string) {
	at := said
	if _, rest, ok := strings.Cut(said, ": "); ok && strings.HasPrefix(said, "environment variable ") {
		at = rest
	}
	at = strings.TrimPrefix(at, "the ")
	kind, rest, _ := strings.Cut(at, " ")
	if kind != "ConfigMap" && kind != "Secret" {
		return otherwise + said, ""
	}
	name, why, _ := strings.Cut(rest, " ")
	switch {
	case why == "does not exist":
		remedy = fmt.Sprintf("make the %s %s, or mark the reference optional", kind, name)
	case strings.HasPrefix(why, "has no key"):
		remedy = fmt.Sprintf("add the key to the %s, or correct the reference", kind)
	default:
		return at + "; it is needed by " + who, "see that the API server can be reached, or that --object-dir has the object"
	}
	return at + "; it is needed by " + who, remedy
}

func (v view) start(f *Finding, said string) {
	means, remedy, known := meant(ofStarts, f.LastError)
	if !known {
		means, remedy, known = ofCommand(f.LastError)
	}
	if !known {
		means, remedy = " cannot be started: "+said, "see the runtime's log"
	}
	f.Cause, f.Remedy = v.called(f.Container)+strings.TrimRight(means, " "), remedy
}

func (v view) probe(f *Finding, kind messages.ProbeKind, said string) {
	f.Cause = fmt.Sprintf("%s: its %s probe fails: %s", v.called(f.Container), kind, said)
	f.WaitsFor = fmt.Sprintf("a success of the %s probe", kind)
	f.Remedy = fmt.Sprintf("make the application answer the probe, or correct %sProbe; %s", kind, v.logs(f.Container, false))
	spec := v.spec(f.Container)
	if spec == nil {
		return
	}
	if p := messages.Probe(spec, kind); p != nil {
		f.WaitsFor += fmt.Sprintf(", which runs every %ds", max(p.PeriodSeconds, 1))
		if kind != messages.Readiness {
			f.WaitsFor += fmt.Sprintf("; after %d failures in a row the container is ended", max(p.FailureThreshold, 1))
		}
	}
}

func (v view) killing(f *Finding, r messages.Reason) {
	f.Until, f.NextTry, f.LastError, f.WaitsFor = r.RetryAt, time.Time{}, r.Cause, "the container's end"
	if r.Probe != "" {
		v.unfit(f, r)
		return
	}
	switch {
	case strings.HasPrefix(r.Cause, messages.PostStartFailed):
		v.start(f, short(r.Cause))
		return
	case r.Cause != "":
		f.Cause, f.Remedy = "the runtime cannot end "+v.called(r.Container)+": "+short(r.Cause), "see the runtime's log"
		return
	}
	f.Cause = v.called(r.Container) + " has been asked to end and may take its grace period for it"
	f.Remedy = "make the application end on its stop signal, or shorten terminationGracePeriodSeconds"
	if spec := v.spec(r.Container); spec != nil && spec.Lifecycle != nil && spec.Lifecycle.PreStop != nil {
		f.Cause = v.called(r.Container) + " is given its grace period for its pre-stop hook (" + hook(spec.Lifecycle.PreStop) +
			") and its end"
		f.Remedy = "make the pre-stop hook shorter, " + f.Remedy
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
