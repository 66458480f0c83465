package container

import (
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/messages"
)

// blockDevices returns the container's block devices (volumeDevices), with the kubelet's permissions: those of a claim that is
// read-only can only be read.
func blockDevices(w messages.RunContainer) (out []*runtimeapi.Device, err error) {
	for _, d := range w.Container.VolumeDevices {
		path, ok := w.Volumes[d.Name]
		if !ok {
			return nil, fmt.Errorf("volume %q of device %s is not mapped", d.Name, d.DevicePath)
		}
		permissions := "mrw"
		if readOnly(volumeOf(w.Pod, d.Name)) {
			permissions = "r"
		}
		out = append(out, &runtimeapi.Device{HostPath: path, ContainerPath: d.DevicePath, Permissions: permissions})
	}
	return out, nil
}
