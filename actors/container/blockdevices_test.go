package container

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/messages"
)

func TestBlockDevices(t *testing.T) {
	for readOnly, permissions := range map[bool]string{false: "mrw", true: "r"} {
		w := messages.RunContainer{Pod: &v1.Pod{}, Volumes: map[string]string{"v": "/link"}, Container: &v1.Container{
			VolumeDevices: []v1.VolumeDevice{{Name: "v", DevicePath: "/dev/xvda"}}}}
		w.Pod.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{
			PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c", ReadOnly: readOnly}}}}
		want := runtimeapi.Device{HostPath: "/link", ContainerPath: "/dev/xvda", Permissions: permissions}
		if got, err := blockDevices(w); err != nil || len(got) != 1 || got[0].String() != want.String() {
			t.Errorf("got %v (%v), want %v", got, err, want.String())
		}
		w.Volumes = nil
		if _, err := blockDevices(w); err == nil {
			t.Error("a device without its volume: got no error")
		}
	}
}
