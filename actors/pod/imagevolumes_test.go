package pod

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/messages"
)

// A container starts with the images that it mounts, which are requested before its own, one after another. It waits for an image
// that cannot be pulled. After a failed start all are requested again. Other containers do not wait for them.
func TestImagesOfVolumesAreThereBeforeTheContainer(t *testing.T) {
	pod := testPod(v1.RestartPolicyAlways, 0, 1)
	image := func(ref string, policy v1.PullPolicy) v1.VolumeSource {
		return v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: ref, PullPolicy: policy}}
	}
	pod.Spec.Volumes = []v1.Volume{{Name: "unused", VolumeSource: image("unused:1", "")},
		{Name: "model", VolumeSource: image("model:1", v1.PullNever)}, {Name: "files", VolumeSource: image("files:1", v1.PullAlways)}}
	main := &pod.Spec.Containers[0]
	main.VolumeMounts = []v1.VolumeMount{{Name: "files", MountPath: "/f"}, {Name: "model", MountPath: "/m"}}
	a := newReady(pod)
	asks := func(image, volume string, policy v1.PullPolicy) messages.ImageKey {
		t.Helper()
		asked := sentOf[messages.PullImage](a.take())
		want := messages.ImageKey{UID: "u1", Container: main.Name, Volume: volume}
		if len(asked) != 1 || asked[0].Image != image || asked[0].Policy != policy || asked[0].Key != want {
			t.Fatalf("%+v, want %s for %q", asked, image, volume)
		}
		return want
	}
	key := asks("model:1", "model", v1.PullNever)
	a.hears(messages.ImageFailed{Key: key, Image: "model:1", Reason: messages.Reason{Code: messages.ReasonErrImageNeverPull, Message: "m"}})
	if s := a.machine.status().ContainerStatuses[0].State.Waiting; s == nil || s.Reason != messages.ReasonErrImageNeverPull {
		t.Errorf("it waits for %v", s)
	}
	if r := a.machine.waiting(); r == nil || r.Volume != "model" || r.Container != main.Name {
		t.Errorf("the pod waits for %+v", r)
	}
	a.hears(messages.ImagePulled{Key: key, Image: "files:1", Ref: "id-other"}) // an earlier request, for another volume
	a.take()
	a.hears(messages.ImagePulled{Key: key, Image: "model:1", Ref: "id-model"})
	key = asks("files:1", "files", v1.PullAlways)
	a.hears(messages.ImagePulled{Key: key, Image: "files:1", Ref: "id-files"})
	key = asks(main.Image, "", main.ImagePullPolicy)
	a.hears(messages.ImagePulled{Key: key, Image: main.Image, Ref: "id-main"})
	runs := sentOf[messages.RunContainer](a.take())
	if len(runs) != 1 || runs[0].ImageRef != "id-main" || len(runs[0].ImageVolumes) != 2 ||
		runs[0].ImageVolumes["model"] != "id-model" || runs[0].ImageVolumes["files"] != "id-files" {
		t.Fatalf("%+v", runs)
	}
	a.hears(messages.ContainerReported{UID: "u1", Name: main.Name, Generation: runs[0].Generation, Stage: messages.StageIdle,
		Failed: &messages.Reason{Code: messages.ReasonCreateContainer, Message: "no such image"}})
	a.observes([]messages.SandboxFact{{ID: "s1", Ready: true, CreatedAt: a.now, IPs: []string{"10.88.0.2"}}})
	a.take()
	a.passes(time.Minute)
	asks("model:1", "model", v1.PullNever)
}
