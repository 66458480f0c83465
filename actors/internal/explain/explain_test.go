package explain

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/messages"
)

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// web is a pod with an init container, and a container that has all that may keep it waiting.
func web() *board.Pod {
	probe := func(path string) *v1.Probe {
		return &v1.Probe{PeriodSeconds: 5, FailureThreshold: 3, ProbeHandler: v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Path: path}}}
	}
	return &board.Pod{
		Pod: &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "u1"},
			Spec: v1.PodSpec{
				RestartPolicy:  v1.RestartPolicyAlways,
				InitContainers: []v1.Container{{Name: "setup", Image: "busybox:1"}},
				Containers: []v1.Container{{
					Name: "c", Image: "127.0.0.1:5000/x:y", StartupProbe: probe("/up"), ReadinessProbe: probe("/ready"),
					LivenessProbe: probe("/live"), Lifecycle: &v1.Lifecycle{
						PostStart: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"warm", "up"}}},
						PreStop:   &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 600}}},
					Resources: v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceMemory: resource.MustParse("16Mi")}},
				}, {Name: "plain", Image: "busybox:1"}},
				Volumes: []v1.Volume{{Name: "model", VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "r/m:1"}}}},
			},
		},
		Status: &v1.PodStatus{Phase: v1.PodPending}, Source: messages.File, Phase: "running",
	}
}

func waiting(r messages.Reason) func(*board.Pod) { return func(p *board.Pod) { p.Waiting = &r } }

// crash has container c held back after an end.
func crash(t v1.ContainerStateTerminated) func(*board.Pod) {
	return func(p *board.Pod) {
		p.Waiting = &messages.Reason{Code: "CrashLoopBackOff", Container: "c", Tries: 3, Since: noon, RetryAt: noon.Add(time.Minute),
			Message: "back-off 40s restarting failed container=c pod=web_default(u1)"}
		p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "c", RestartCount: 3,
			State:                v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
			LastTerminationState: v1.ContainerState{Terminated: &t}}}
	}
}

func image(code string, why messages.CauseCode) func(*board.Pod) {
	return waiting(messages.Reason{Code: code, Container: "c", Message: code + " of it",
		Cause: messages.Cause{Code: why, Text: "the moon is\nfull"}, Tries: 2})
}

// because returns a cause with the code and the error text.
func because(code messages.CauseCode, text string) messages.Cause {
	return messages.Cause{Code: code, Text: text}
}

// of returns a cause that names an object.
func of(code messages.CauseCode, kind, name, detail string) messages.Cause {
	return messages.Cause{Code: code, Kind: kind, Name: name, Detail: detail, Text: "the error's text"}
}

func status(s v1.PodStatus) func(*board.Pod) { return func(p *board.Pod) { p.Status = &s } }

// refusedFor is a pod that the node refused, or ended.
func refusedFor(reason string, why messages.Cause) func(*board.Pod) {
	return func(p *board.Pod) {
		p.Status, p.Cause = &v1.PodStatus{Phase: v1.PodFailed, Reason: reason, Message: "Pod was rejected: see its cause"}, why
	}
}

func runs(started, ready bool) v1.ContainerStatus {
	return v1.ContainerStatus{Name: "c", Started: &started, Ready: ready,
		State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.NewTime(noon)}}}
}

func running(all ...v1.ContainerStatus) func(*board.Pod) {
	return status(v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: all})
}

func ending(more ...func(*board.Pod)) func(*board.Pod) {
	return func(p *board.Pod) {
		p.Ending, p.EndingSince = "it was deleted", noon
		for _, m := range more {
			m(p)
		}
	}
}

const runc = "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: " +
	"unable to start container process: error during container init: "

// A person reads these sentences: each names the cause, and no code.
func TestTheCauseOfEachState(t *testing.T) {
	for _, c := range []struct {
		name string
		pod  func(*board.Pod)
		want string
	}{
		// source and admission
		{"agent starting", waiting(messages.Reason{Code: "AgentStarting", Message: "the agent is starting"}), "the agent is starting"},
		{"name taken", waiting(messages.Reason{Code: "NameTaken",
			Message: "sources/http wants a pod of the same name, which comes first: remove one of the two"}),
			"sources/http wants a pod of the same name, which comes first: remove one of the two"},
		{"predecessor", waiting(messages.Reason{Code: "PredecessorEnding", Message: "a pod of the same name is still ending"}),
			"a pod of the same name is still ending"},
		{"unsupported", waiting(messages.Reason{Code: "Unsupported", Permanent: true,
			Message: "the pod waits, since it sets what Playlet does not support yet: spec.volumes[0].csi"}),
			"the pod waits, since it sets what Playlet does not support yet: spec.volumes[0].csi"},
		{"node unread", waiting(messages.Reason{Code: "NodeUnknown",
			Message: "this node's object, whose labels and taints decide, was not read yet"}),
			"this node's object, whose labels and taints decide, was not read yet"},
		{"node selector", refusedFor("NodeAffinity", because("", "the pod's nodeSelector wants the label disk=ssd, which this node has not")),
			"the pod's nodeSelector wants the label disk=ssd, which this node has not"},
		{"taint", refusedFor("TaintToleration", because("", "the pod does not tolerate the node's taint gpu=yes:NoExecute")),
			"the pod does not tolerate the node's taint gpu=yes:NoExecute"},
		{"refused by an earlier agent", status(v1.PodStatus{Phase: v1.PodFailed, Reason: "NodeAffinity", Message: "Pod was rejected: x."}),
			"Pod was rejected: x"},
		{"quota of pods", refusedFor("OutOfpods", of(messages.CauseShortage, "", "pods", "requested: 1, used: 110, capacity: 110")),
			"the node already has its maximum number of pods (requested: 1, used: 110, capacity: 110)"},
		{"too little cpu, static", waiting(messages.Reason{Code: "OutOfcpu",
			Cause: of(messages.CauseShortage, "", "cpu", "requested: 4000, used: 500, capacity: 2000")}),
			"the node does not have enough CPU left for the pod (in millicores, requested: 4000, used: 500, capacity: 2000)"},
		{"port conflict", waiting(messages.Reason{Code: "NodePorts", Message: "Predicate NodePorts failed: host port 80/TCP is held by pod a/b",
			Cause: because("", "host port 80/TCP is held by pod a/b")}),
			"host port 80/TCP is held by pod a/b"},
		{"pressure", refusedFor("Evicted", of(messages.CausePressure, "", "", "[DiskPressure]")),
			"the node is under pressure and does not admit such pods: [DiskPressure]"},
		{"evicted", status(v1.PodStatus{Phase: v1.PodFailed, Reason: "Evicted", Message: "The node was low on resource: memory. " +
			"Threshold quantity: 100Mi, available: 60Mi. "}),
			"the node evicted it to protect itself: The node was low on resource: memory. Threshold quantity: 100Mi, available: 60Mi"},
		{"preempting", waiting(messages.Reason{Code: "Preempting", Message: "it waits for the end of others"}), "it waits for the end of others"},

		// image
		{"wrong image name", image("ImagePullBackOff", messages.CauseImageNotFound), "container c: image 127.0.0.1:5000/x:y not found in its registry"},
		{"registry down", image("ErrImagePull", messages.CauseRegistryUnreachable),
			"container c: image 127.0.0.1:5000/x:y cannot be pulled: its registry does not answer"},
		{"unknown host", image("ErrImagePull", messages.CauseRegistryUnresolved),
			"container c: image 127.0.0.1:5000/x:y cannot be pulled: the name of its registry cannot be resolved"},
		{"no right", image("ErrImagePull", messages.CauseUnauthorized),
			"container c: image 127.0.0.1:5000/x:y cannot be pulled: its registry denied access"},
		{"certificate", image("ErrImagePull", messages.CauseUntrustedCertificate),
			"container c: image 127.0.0.1:5000/x:y cannot be pulled: the runtime does not trust its registry's certificate"},
		{"full disk", image("ErrImagePull", messages.CauseDiskFull),
			"container c: image 127.0.0.1:5000/x:y cannot be pulled: no space is left on the node's disk"},
		{"a pull that fails otherwise", image("ErrImagePull", ""),
			"container c: image 127.0.0.1:5000/x:y cannot be pulled: the moon is full"},
		{"policy Never", image("ErrImageNeverPull", ""), "container c: image 127.0.0.1:5000/x:y is not on this node, and imagePullPolicy is Never"},
		{"a volume's", waiting(messages.Reason{Code: "ErrImagePull", Container: "c", Volume: "model", Cause: of(messages.CauseImageNotFound, "", "", ""), Tries: 2}),
			"container c, volume model: image r/m:1 not found in its registry"},
		{"a volume's policy", waiting(messages.Reason{Code: "ErrImageNeverPull", Container: "c", Volume: "model"}),
			"container c, volume model: image r/m:1 is not on this node, and the volume's pullPolicy is Never"},
		{"no name", image("InvalidImageName", ""), "container c: image 127.0.0.1:5000/x:y is not a valid name"},
		{"pulling", waiting(messages.Reason{Code: "Pulling", Container: "c",
			Cause: of(messages.CausePulling, "", "127.0.0.1:5000", ""), Before: because("", "x")}),
			"container c: image 127.0.0.1:5000/x:y is being pulled from the registry 127.0.0.1:5000"},
		{"queued", waiting(messages.Reason{Code: "PullQueued", Container: "c", Cause: of(messages.CauseQueued, "", "r", "2nd")}),
			"container c: image 127.0.0.1:5000/x:y is 2nd in the queue of the registry r"},

		// volume
		{"missing ConfigMap", waiting(messages.Reason{Code: "FailedMount", Volume: "conf", Cause: of(messages.CauseObjectAbsent, "ConfigMap", "default/settings", "")}),
			"ConfigMap default/settings does not exist; it is needed by volume conf"},
		{"missing key", waiting(messages.Reason{Code: "FailedMount", Volume: "conf", Cause: of(messages.CauseKeyAbsent, "Secret", "default/tls", "tls.crt")}),
			`Secret default/tls has no key "tls.crt"; it is needed by volume conf`},
		{"object unread", waiting(messages.Reason{Code: "FailedMount", Volume: "conf",
			Cause: of(messages.CauseObjectUnread, "Secret", "default/tls", "it has not been read from the API server yet: refused")}),
			"Secret default/tls: it has not been read from the API server yet: refused; it is needed by volume conf"},
		{"owners", waiting(messages.Reason{Code: "VolumePermissionChangeInProgress", Volume: "data", Cause: because("", "processed 7 files")}),
			"containers wait for volume data: its files are being given to the pod's fsGroup"},
		{"hostPath", waiting(messages.Reason{Code: "FailedMount", Volume: "data",
			Cause: because(messages.CauseHostPath, "hostPath /data is not what its type Directory asks for: nothing is there")}),
			"volume data cannot be mounted: hostPath /data is not what its type Directory asks for: nothing is there"},
		{"volume busy", waiting(messages.Reason{Code: "FailedMount", Volume: "data", Cause: because(messages.CauseMounting, "it is still being mounted after 2m0s; that goes on")}),
			"volume data cannot be mounted: it is still being mounted after 2m0s; that goes on"},
		{"no nfs server", waiting(messages.Reason{Code: "FailedMount", Volume: "data", Cause: because(messages.CauseServerUnreachable, "nas:/d: the server does not answer (mount.nfs: Connection timed out)")}),
			"volume data cannot be mounted: nas:/d: the server does not answer (mount.nfs: Connection timed out)"},
		{"no mount.nfs", waiting(messages.Reason{Code: "FailedMount", Volume: "data", Cause: because(messages.CauseMountProgramAbsent, "nfs needs the program mount.nfs")}),
			"volume data cannot be mounted: nfs needs the program mount.nfs"},
		{"no driver", waiting(messages.Reason{Code: "FailedMount", Volume: "data", Cause: because(messages.CauseDriverAbsent, "CSI driver disk.example.org is not registered on this node")}),
			"containers wait for volume data: CSI driver disk.example.org is not registered on this node"},
		{"no DRA driver", waiting(messages.Reason{Code: messages.ReasonPrepareClaims, Cause: messages.Cause{Code: messages.CauseClaimDriverAbsent, Name: "gpu.org", Detail: "ns/c", Text: "x"}}),
			"the pod's ResourceClaims cannot be prepared: DRA driver gpu.org of ResourceClaim ns/c is not registered on this node"},
		{"no DRA driver at the end", waiting(messages.Reason{Code: messages.ReasonReleaseClaims, Cause: messages.Cause{Code: messages.CauseClaimDriverAbsent, Name: "gpu.org", Detail: "ns/c", Text: "x"}}),
			"the pod's ResourceClaims cannot be unprepared: DRA driver gpu.org of ResourceClaim ns/c is not registered on this node"},
		{"failing DRA driver", waiting(messages.Reason{Code: messages.ReasonReleaseClaims, Cause: messages.Cause{Code: messages.CauseClaimDriverFailed, Name: "gpu.org", Detail: "ns/c", Text: "no power"}}),
			"the pod's ResourceClaims cannot be unprepared: DRA driver gpu.org fails for ResourceClaim ns/c: no power"},
		{"no claim", waiting(messages.Reason{Code: messages.ReasonPrepareClaims, Cause: messages.Cause{Code: messages.CauseObjectAbsent, Kind: "ResourceClaim", Name: "ns/c", Text: "x"}}),
			"ResourceClaim ns/c does not exist; it is needed by the pod"},
		{"not attached", waiting(messages.Reason{Code: "FailedMount", Volume: "data", Cause: because(messages.CauseNotAttached, "volume pv of CSI driver d is not attached to this node yet")}),
			"containers wait for volume data: volume pv of CSI driver d is not attached to this node yet"},
		{"not bound", waiting(messages.Reason{Code: "FailedMount", Volume: "data", Cause: because(messages.CauseClaimPending, "PersistentVolumeClaim ns/c is not bound to a volume yet")}),
			"containers wait for volume data: PersistentVolumeClaim ns/c is not bound to a volume yet"},
		{"folder", waiting(messages.Reason{Code: "FailedMount", Message: "no space left on device"}),
			"the pod's folder cannot be created: no space left on device"},

		// network and runtime
		{"no network", waiting(messages.Reason{Code: "NetworkNotReady", Message: "network is not ready: cni plugin not initialized"}),
			"network is not ready: cni plugin not initialized"},
		{"CNI plugin missing", waiting(messages.Reason{Code: "FailedCreatePodSandBox",
			Cause: of(messages.CausePluginAbsent, "", "bridge", "/opt/cni/bin")}),
			"the CNI plugin bridge is not installed in /opt/cni/bin"},
		{"no address", waiting(messages.Reason{Code: "FailedCreatePodSandBox",
			Cause: of(messages.CauseNoAddress, "", "", "")}),
			"the pods' network has no address left for the pod"},
		{"handler", waiting(messages.Reason{Code: "FailedCreatePodSandBox", Cause: of(messages.CauseHandlerAbsent, "", "gvisor", "")}),
			`the runtime has no handler "gvisor", which the pod's RuntimeClass names`},
		{"sandbox", waiting(messages.Reason{Code: "FailedCreatePodSandBox", Message: "RuntimeClass x does not exist"}),
			"the pod's sandbox cannot be created: RuntimeClass x does not exist"},
		{"runtime down", waiting(messages.Reason{Code: "RuntimeUnavailable", Message: "connection refused"}),
			"the container runtime does not answer: connection refused"},
		{"cgroup", waiting(messages.Reason{Code: "FailedCreatePodContainer", Message: "read-only file system"}),
			"the pod's cgroup cannot be created: read-only file system"},
		{"quarantine", func(p *board.Pod) { p.Quarantine = &messages.ChildQuarantined{Reason: "nil map", Until: noon} },
			"the pod's actor failed too often and is in quarantine, and its containers are left alone: nil map"},

		{"all are restarted", waiting(messages.Reason{Code: "RestartingAllContainers",
			Message: "all containers are restarted: container c exited with code 42"}),
			"all containers are restarted: container c exited with code 42"},

		// start
		{"missing ConfigMap in the environment", waiting(messages.Reason{Code: "CreateContainerConfigError", Container: "c",
			Cause: of(messages.CauseObjectAbsent, "ConfigMap", "default/settings", "")}),
			"ConfigMap default/settings does not exist; it is needed by container c"},
		{"missing Secret in envFrom", waiting(messages.Reason{Code: "CreateContainerConfigError", Container: "setup",
			Cause: of(messages.CauseObjectAbsent, "Secret", "default/s", "")}), "Secret default/s does not exist; it is needed by init container setup"},
		{"root", waiting(messages.Reason{Code: "CreateContainerConfigError", Container: "c", Message: "runAsNonRoot, and the image's user is root"}),
			"container c cannot be created: runAsNonRoot, and the image's user is root"},
		{"bad command", crash(v1.ContainerStateTerminated{Reason: "StartError", ExitCode: 128,
			Message: runc + `exec: "nope": executable file not found in $PATH: unknown`}), `container c: its command "nope" is not in the image`},
		{"bad command, by crun", crash(v1.ContainerStateTerminated{Reason: "StartError", ExitCode: 128,
			Message: "OCI runtime create failed: executable file `nope` not found in $PATH: No such file or directory: unknown"}),
			`container c: its command "nope" is not in the image`},
		{"a mount in a read-only one", crash(v1.ContainerStateTerminated{Reason: "StartError", ExitCode: 128,
			Message: runc + `error mounting "/var/lib/x" to rootfs at "/data/sub": create mountpoint for /data/sub mount: mkdirat sub: read-only file system`}),
			`container c: the mount at "/data/sub" has no mount point, and none can be made: the image's root or the volume around it is read-only`},
		{"no right to the command", crash(v1.ContainerStateTerminated{Reason: "StartError", ExitCode: 128,
			Message: runc + `exec: "/etc/passwd": permission denied`}), `container c: its command "/etc/passwd" may not be executed by its user`},
		{"post-start hook fails", waiting(messages.Reason{Code: "RunContainerError", Container: "c", Cause: because(messages.CausePostStart, "code 3")}),
			"container c: its post-start hook failed: code 3"},
		{"start", waiting(messages.Reason{Code: "RunContainerError", Container: "c", Message: "device or resource busy"}),
			"container c cannot be started: device or resource busy"},

		{"memory is full", func(p *board.Pod) {
			limit := resource.MustParse("16Mi")
			p.Pod.Spec.Resources = &v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceMemory: limit}}
			p.Pod.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: "Memory", SizeLimit: &limit}}}}
			crash(v1.ContainerStateTerminated{Reason: "StartError", ExitCode: 128, Message: runc + "procReady not received"})(p)
		}, "container c: the kernel most likely killed its first process, because the memory limit is used up"},
		{"memory may be full, and nothing suggests it", crash(v1.ContainerStateTerminated{Reason: "StartError", ExitCode: 128, Message: runc + "procReady not received"}),
			"container c cannot be started: " + runc + "procReady not received"},

		// back-off
		{"OOM", crash(v1.ContainerStateTerminated{Reason: "OOMKilled", ExitCode: 137}), "container c was killed for using more than 16Mi of memory"},
		{"exit code", crash(v1.ContainerStateTerminated{Reason: "Error", ExitCode: 3, Message: "at work\nno database\n"}),
			"container c exited with code 3: no database"},
		{"signal", crash(v1.ContainerStateTerminated{Reason: "Error", ExitCode: 139}), "container c was killed by SIGSEGV (exit code 139)"},
		{"not found in a shell", crash(v1.ContainerStateTerminated{Reason: "Error", ExitCode: 127}),
			"container c exited with code 127: a command was not found"},
		{"it completes", crash(v1.ContainerStateTerminated{Reason: "Completed"}),
			"container c exited with code 0, and its restartPolicy starts it again"},
		{"liveness", waiting(messages.Reason{Code: "CrashLoopBackOff", Container: "c", Probe: messages.Liveness, Cause: because("", "HTTP 500")}),
			"container c was killed because its liveness probe failed: HTTP 500"},

		// init and probes
		{"init runs", func(p *board.Pod) {
			r := runs(false, false)
			r.Name = "setup"
			p.Status.InitContainerStatuses = []v1.ContainerStatus{r}
		}, "init container setup is still running, and the others wait for it to finish"},
		{"init fails", func(p *board.Pod) {
			p.Status.InitContainerStatuses = []v1.ContainerStatus{{Name: "setup", State: v1.ContainerState{
				Terminated: &v1.ContainerStateTerminated{ExitCode: 1, Reason: "Error"}}}}
		}, "init container setup exited with code 1"},
		{"startup probe fails", waiting(messages.Reason{Code: "Unhealthy", Container: "c", Probe: messages.Startup, Cause: because("", "connection refused")}),
			"container c: its startup probe fails: connection refused"},
		{"readiness probe fails", waiting(messages.Reason{Code: "Unhealthy", Container: "c", Probe: messages.Readiness, Cause: because("", "HTTP 503")}),
			"container c: its readiness probe fails: HTTP 503"},
		{"startup probe is awaited", running(runs(false, false)), "container c is running, and its startup probe has not succeeded yet"},
		{"post-start hook runs", func(p *board.Pod) {
			running(runs(false, false))(p)
			p.Pod.Spec.Containers[0].StartupProbe = nil
		}, "container c is running, and its post-start hook (warm up) has not finished yet"},
		{"readiness probe is awaited", running(runs(true, false)), "container c is running, and its readiness probe has not succeeded yet"},
		{"readiness gate", func(p *board.Pod) {
			running(runs(true, true))(p)
			p.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Reason: "ReadinessGatesNotReady",
				Message: `corresponding condition of pod readiness gate "x" does not exist.`}}
		}, `its containers are ready, but a readiness gate is not: corresponding condition of pod readiness gate "x" does not exist.`},

		// the end
		{"stuck pre-stop", ending(waiting(messages.Reason{Code: "Killing", Container: "c", RetryAt: noon})),
			"the pod is ending because it was deleted: container c has its grace period to run its pre-stop hook (sleep 600s) and to stop"},
		{"grace period", ending(waiting(messages.Reason{Code: "Killing", Container: "plain", RetryAt: noon})),
			"the pod is ending because it was deleted: container plain has its grace period to stop"},
		{"grace period, known", ending(waiting(messages.Reason{Code: "Killing", Container: "plain", Since: noon, RetryAt: noon.Add(30 * time.Second)})),
			"the pod is ending because it was deleted: container plain has up to 30s to stop"},
		{"sandbox that stays", ending(waiting(messages.Reason{Code: "FailedKillPod", Message: "cni: del failed"})),
			"the pod is ending because it was deleted: the runtime cannot stop the pod's sandbox: cni: del failed"},
		{"volumes", ending(waiting(messages.Reason{Code: "Unmounting", Message: "its volumes are being unmounted"})),
			"the pod is ending because it was deleted: its volumes are being unmounted"},
		{"driver that does not answer", ending(waiting(messages.Reason{Code: "Unmounting", Message: "a CSI driver has volumes of it still: x", Cause: messages.Cause{
			Code: messages.CauseDriverCall, Name: "d.example.org", Text: "CSI driver d.example.org has not answered NodeUnpublishVolume for volume pv-c yet"}})),
			"the pod is ending because it was deleted: CSI driver d.example.org has not answered NodeUnpublishVolume for volume pv-c yet"},
		{"removal fails", ending(waiting(messages.Reason{Code: "FailedRemove", Message: "busy"})),
			"the pod is ending because it was deleted: the runtime cannot remove the ended pod's sandbox or containers: busy"},
		{"liveness kill", waiting(messages.Reason{Code: "Killing", Container: "c", Probe: messages.Liveness, Cause: because("", "HTTP 500")}),
			"container c is being killed because its liveness probe failed: HTTP 500"},
		{"finalizers", waiting(messages.Reason{Code: "Finalizers",
			Message: "nothing of the pod is left here; its object is kept by its finalizers: example.com/hold"}),
			"nothing of the pod is left here; its object is kept by its finalizers: example.com/hold"},

		// nothing to wait for
		{"failed", status(v1.PodStatus{Phase: v1.PodFailed, ContainerStatuses: []v1.ContainerStatus{{Name: "c",
			State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 2}}}}}), "container c exited with code 2"},
		{"failed, a moment ago", func(p *board.Pod) {
			waiting(messages.Reason{Code: "Removing", Message: "what is left of it is being removed"})(p)
			p.Status = &v1.PodStatus{Phase: v1.PodFailed, ContainerStatuses: []v1.ContainerStatus{{Name: "c",
				State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 9}}}}}
		}, "container c exited with code 9"},
		{"failed, and what is left stays", func(p *board.Pod) {
			waiting(messages.Reason{Code: "Unmounting", Message: "its volumes are being unmounted"})(p)
			p.Status = &v1.PodStatus{Phase: v1.PodFailed, ContainerStatuses: []v1.ContainerStatus{{Name: "c",
				State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 9}}}}}
		}, "container c exited with code 9"},
		{"too long", status(v1.PodStatus{Phase: v1.PodFailed, Reason: "DeadlineExceeded",
			Message: "the pod was active for longer than its activeDeadlineSeconds (5)"}),
			"the pod was active for longer than its activeDeadlineSeconds (5)"},
	} {
		p := web()
		c.pod(p)
		if got := Cause(p); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, got, c.want)
		}
		if e := Pod(p); e.Code == "" || strings.Contains(e.Cause, e.Code) && !strings.Contains(c.want, e.Code) {
			t.Errorf("%s: %+v", c.name, e.Finding)
		}
	}
}

// A pod without problems has no cause, but it has a finding.
func TestWhatIsFine(t *testing.T) {
	again := runs(true, true)
	again.LastTerminationState.Terminated = &v1.ContainerStateTerminated{ExitCode: 1}
	for want, pod := range map[string]func(*board.Pod){
		"the pod is running, and all of its containers are ready":          running(runs(true, true)),
		"it is running again; before that, container c exited with code 1": running(again),
		"the pod has completed: all of its containers exited with code 0":  status(v1.PodStatus{Phase: v1.PodSucceeded}),
		"its containers are being started one after another":               func(*board.Pod) {},
		"the pod's sandbox, volumes and images are being prepared":         func(p *board.Pod) { p.Status, p.Phase = nil, "" },
	} {
		p := web()
		pod(p)
		e := Pod(p)
		if e.Cause != want || Cause(p) != "" {
			t.Errorf("%q, %q, want %q", e.Cause, Cause(p), want)
		}
		if e.Code == restarted && e.Remedy != "see playlet logs -p -n default web -c c" {
			t.Errorf("of a container that runs again: %q", e.Remedy) // the log of the run that failed
		}
	}
}

// The fields of a finding beside its sentence.
func TestTheRestOfAFinding(t *testing.T) {
	p := web()
	crash(v1.ContainerStateTerminated{Reason: "OOMKilled", ExitCode: 137})(p)
	p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, v1.ContainerStatus{Name: "plain",
		State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "manifest unknown"}}})
	p.Holds = []messages.Reason{{Code: "ErrImagePull", Container: "plain", Message: "manifest unknown",
		Cause: because(messages.CauseImageNotFound, "manifest unknown")}}
	e := Pod(p)
	if e.WaitsFor != "the end of its back-off" || e.Tries != 3 || !e.NextTry.Equal(noon.Add(time.Minute)) || !e.Since.Equal(noon) ||
		e.Remedy != "raise the container's memory limit, or reduce its memory use; see playlet logs -p -n default web -c c" {
		t.Errorf("%+v", e.Finding)
	}
	if len(e.Others) != 1 || e.Others[0].Cause != "container plain: image busybox:1 not found in its registry" {
		t.Errorf("%+v", e.Others)
	}
	if all := strings.Join(e.Evidence, "\n"); !strings.Contains(all, "exit code 137") || !strings.Contains(all, "CrashLoopBackOff") {
		t.Error(all)
	}
	p = web()
	waiting(messages.Reason{Code: "Killing", Container: "c", RetryAt: noon})(p)
	if e := Pod(p); !e.Until.Equal(noon) || !e.NextTry.IsZero() {
		t.Errorf("%+v", e.Finding)
	}
}

// A preparation that takes long names the missing parts; it is not a problem that lists of pods show.
func TestPreparation_ThatIsSlow(t *testing.T) {
	p := web()
	waiting(messages.Reason{Code: "ContainerCreating", Message: "the sandbox"})(p)
	if e := Pod(p); e.Cause != "the pod is being prepared, and waits for the sandbox" || e.WaitsFor != "the sandbox" || e.LastError != "" {
		t.Errorf("%+v", e.Finding)
	}
	if text := Cause(p); text != "" {
		t.Errorf("a pod that starts has the problem %q", text)
	}
}

// The remedy for a container that ends slowly has an effect: the grace period of a pod that is ending is not changed by its
// manifest.
func TestRemedy_OfAnEnd(t *testing.T) {
	kill := waiting(messages.Reason{Code: "Killing", Container: "plain", RetryAt: noon})
	for source, want := range map[messages.Address]string{
		messages.APIServer: "kubectl delete pod -n default web --grace-period=1",
		messages.File:      "playlet rm -n default web --force",
		messages.Submit:    "playlet rm -n default web --force",
	} {
		p := web()
		p.Source = source
		kill(p)
		if e := Pod(p); !strings.HasSuffix(e.Remedy, "or shorten terminationGracePeriodSeconds") {
			t.Errorf("a container of a pod that stays: %s", e.Remedy)
		}
		ending(kill)(p)
		if e := Pod(p); !strings.HasSuffix(e.Remedy, "or "+want) {
			t.Errorf("%s: %s, want %s", source, e.Remedy, want)
		}
	}
}

func TestTheNode(t *testing.T) {
	s := &board.Snapshot{Under: []v1.NodeConditionType{v1.NodeDiskPressure}}
	e := Node([]Check{{Name: "ping"}, {Name: "runtime", Failed: "it is gone"}, {Name: "cluster", Notes: []string{"refused"}}}, s)
	var got []string
	for _, f := range append([]Finding{e.Finding}, e.Others...) {
		got = append(got, f.Code+": "+f.Cause)
	}
	want := "runtime: it is gone|DiskPressure: the node is short of disk space: only static and critical pods are admitted|cluster: refused"
	if strings.Join(got, "|") != want || len(e.Evidence) != 3 {
		t.Errorf("%q %q", got, e.Evidence)
	}
	if e = Node([]Check{{Name: "ping"}}, &board.Snapshot{}); e.Code != "" || e.Cause != "the node is healthy: the runtime and its network are "+
		"ready, all sources have reported, and the agent has 0 pods" {
		t.Errorf("%+v", e)
	}
	e = Node([]Check{{Name: "listeners", Notes: []string{"port 10250 is closed"}}}, &board.Snapshot{Pods: []board.Pod{{}}})
	if e.Cause != "the node works, with 1 note: the runtime and its network are ready, all sources have reported, and the agent has "+
		"1 pod" || len(e.Others) != 1 || e.Others[0].Cause != "port 10250 is closed" {
		t.Errorf("a note comes before how the node is: %+v", e)
	}
}

// A refused pod waits for the condition that would admit it.
func TestWhatARefusedPodWaitsFor(t *testing.T) {
	for _, c := range []struct {
		code  string
		cause messages.CauseCode
		want  string
	}{
		{"NodePorts", "", "the end of that pod"}, {"OutOfpods", messages.CauseShortage, "the end of other pods"},
		{"TaintToleration", "", "the end of the taint"}, {"NodeAffinity", "", "other labels of the node"},
		{"Evicted", messages.CausePressure, "the node to change"}, {"Other", "", "the node to change"},
	} {
		r := messages.Reason{Code: c.code, Message: "m", Cause: messages.Cause{Code: c.cause}}
		if f := (view{pod: &v1.Pod{}, is: &v1.PodStatus{}}).reason(r); f.WaitsFor != c.want {
			t.Errorf("%s waits for %s, want %s", c.code, f.WaitsFor, c.want)
		}
	}
}

func TestPodsThatAreNotThere(t *testing.T) {
	s := &board.Snapshot{Problems: []messages.ManifestProblem{{Path: "/m/a.yaml", Line: 2, Field: "spec.x", Pod: "default/web",
		Message: "unknown field"}},
		Unheard: []messages.Address{messages.APIServer}}
	for _, namespace := range []string{"", "default"} {
		e, known := Absent(namespace, "web", s)
		if !known || e.Cause != "its manifest cannot be used: /m/a.yaml:2: spec.x: unknown field" || len(e.Others) != 1 {
			t.Errorf("%+v", e)
		}
	}
	if e, known := Absent("x", "web", s); !known || e.Cause != "sources/apiserver has not reported its pods yet" {
		t.Errorf("%+v", e)
	}
	s.Problems[0].Pod = ""
	if e, _ := Absent("x", "web", s); !strings.HasPrefix(e.Cause, "a manifest that may be the pod's cannot be used: /m/a.yaml") {
		t.Errorf("%+v", e)
	}
	if _, known := Absent("", "web", &board.Snapshot{}); known {
		t.Error("there is something to say of nothing")
	}
}

// An absent ConfigMap or Secret is created with kubectl in a cluster, and submitted on a standalone node.
func TestAbsentObject_Remedy(t *testing.T) {
	for _, c := range []struct {
		source     messages.Address
		kind, want string
	}{
		{messages.APIServer, "ConfigMap", "kubectl create configmap settings -n shop --from-file=FILE, or mark the reference optional"},
		{messages.APIServer, "Secret", "kubectl create secret generic settings -n shop --from-file=FILE, or mark the reference optional"},
		{messages.File, "ConfigMap", "submit it (playlet run -f FILE) or put it into the folder of --object-dir, or mark the reference optional"},
		{messages.Submit, "Secret", "submit it (playlet run -f FILE) or put it into the folder of --object-dir, or mark the reference optional"},
		{messages.APIServer, "Service", "create the Service shop/settings, or mark the reference optional"},
	} {
		for _, r := range []messages.Reason{{Code: "FailedMount", Volume: "v"}, {Code: "CreateContainerConfigError", Container: "c"}} {
			r.Cause = messages.Cause{Code: messages.CauseObjectAbsent, Kind: c.kind, Name: "shop/settings"}
			e := Pod(&board.Pod{Pod: &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c"}}}}, Source: c.source, Waiting: &r})
			if e.Remedy != c.want {
				t.Errorf("%s of %s: %q, want %q", c.kind, c.source, e.Remedy, c.want)
			}
		}
	}
}

func TestNode_EachCheckHasARemedy(t *testing.T) {
	for _, name := range []string{"runtime", "supervisors", "sources", "pods", "listeners", "probes", "cluster", "dns", "identity", "port", "shutdown"} {
		e := Node([]Check{{Name: name, Failed: "problem", Notes: []string{"note"}}}, &board.Snapshot{})
		for _, f := range append([]Finding{e.Finding}, e.Others...) {
			if f.Code != name || f.Remedy == "" {
				t.Errorf("%s of check %s has no remedy", f.Cause, name)
			}
		}
	}
}
