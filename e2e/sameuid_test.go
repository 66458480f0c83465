//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/e2e/stack"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// With its own constant UID the pod stays: only the containers with a changed spec are replaced. They end as gracefully, and can
// be inspected afterwards.
func deletionSameUID(t *testing.T, w *world) {
	same := w.identified("same", `
terminationGracePeriodSeconds: 60
containers:
- {name: stays, image: HELLO, args: [sleep]}
- {name: c, image: HELLO, args: [ARGS]}`)
	// Its hook never ends by itself, and it ends on no signal.
	stuck := w.identified("stuck", `
terminationGracePeriodSeconds: 1
containers:
- {name: c, image: HELLO, args: [ARGS], DATA,
   lifecycle: {preStop: {exec: {command: [/hello, append, /data/stuck, hook, '--', sleep]}}}}`)
	same.write(t, "slow-term, '9', '1'")
	stuck.write(t, "ignore-term")
	awaitPod(t, w.a, "stuck", ready)
	awaitPod(t, w.a, "same", ready)
	stays := up(t, w.s, "same", "stays")
	if got := stays.Labels[stack.UIDLabel]; got != same.uid {
		t.Errorf("the pod's UID is %s", got)
	}
	sandbox := map[string]string{}
	for _, name := range []string{"same", "stuck"} {
		sandbox[name] = up(t, w.s, name, "c").PodSandboxId
	}
	same.write(t, "sleep")
	stuck.write(t, "sleep, '100000'")
	for name, code := range map[string]int32{"same": 9, "stuck": 137} {
		pod := awaitPod(t, w.a, name, func(p *corev1.Pod) error {
			if c := statusOf(p, "c"); c.RestartCount != 1 {
				return fmt.Errorf("the container: %+v", c)
			}
			return ready(p)
		})
		if end := statusOf(pod, "c").LastTerminationState.Terminated; end == nil || end.ExitCode != code {
			t.Errorf("pod %s: the container that was replaced should have ended with %d: %+v", name, code, statusOf(pod, "c"))
		}
		if after := up(t, w.s, name, "c"); after.Metadata.Attempt != 1 || after.PodSandboxId != sandbox[name] {
			t.Errorf("pod %s: attempt %d in sandbox %s, before in %s", name, after.Metadata.Attempt, after.PodSandboxId,
				sandbox[name])
		}
	}
	awaitFile(t, w.file("stuck"), "hook\n")
	// A container that the manifest no longer names ends, and a new one begins.
	same.spec = strings.Replace(same.spec, "{name: c,", "{name: new,", 1)
	same.write(t, "sleep")
	newest(t, w.s, "same", "c", runtimeapi.ContainerState_CONTAINER_EXITED)
	if added := up(t, w.s, "same", "new"); added.Metadata.Attempt != 0 || added.PodSandboxId != sandbox["same"] {
		t.Errorf("what was added is attempt %d in sandbox %s", added.Metadata.Attempt, added.PodSandboxId)
	}
	if now := up(t, w.s, "same", "stays"); now.Id != stays.Id {
		t.Error("the container that did not change is another")
	}
	must(t, w.a.Remove("same.yaml"))
	must(t, w.a.Remove("stuck.yaml"))
}

// podWithUID is a pod with a UID in its manifest, so that a changed manifest is no successor.
type podWithUID struct {
	w               *world
	name, uid, spec string
}

func (w *world) identified(name, spec string) podWithUID {
	return podWithUID{w, name, fmt.Sprintf("%s-of-%s", name, strings.ReplaceAll(string(w.s.Kind()), ".", "-")), spec}
}

// write writes the manifest, with args in place of ARGS.
func (i podWithUID) write(t *testing.T, args string) {
	t.Helper()
	text := withFolder(i.w.s, i.name, i.w.dir, strings.ReplaceAll(i.spec, "ARGS", args))
	must(t, i.w.a.Write(i.name+".yaml", strings.Replace(text, "{name: "+i.name+"}", "{name: "+i.name+", uid: "+i.uid+"}", 1)))
}
