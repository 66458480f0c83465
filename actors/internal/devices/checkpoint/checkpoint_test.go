package checkpoint

import (
	"reflect"
	"strings"
	"testing"
)

// kubelets are files that the code of the kubelet 1.36.3 wrote.
var kubelets = map[string]Data{
	`{"Data":{"PodDeviceEntries":[{"PodUID":"u","ContainerName":"c","ResourceName":"example.com/gpu","DeviceIDs":{"-1":["a"]},"AllocResp":"CggKA0dQVRIBYQ=="},` +
		`{"PodUID":"v","ContainerName":"d","ResourceName":"example.com/nic","DeviceIDs":{"0":["x","y"],"1":["y"]},"AllocResp":"CggKA0dQVRIBYQ=="}],` +
		`"RegisteredDevices":{"example.com/gpu":["b","a"],"example.com/nic":[]}},"Checksum":1961435519}`: {
		PodDeviceEntries: []PodDevicesEntry{
			{"u", "c", "example.com/gpu", DevicesPerNUMA{NoNode: {"a"}}, []byte("\n\x08\n\x03GPU\x12\x01a")},
			{"v", "d", "example.com/nic", DevicesPerNUMA{0: {"x", "y"}, 1: {"y"}}, []byte("\n\x08\n\x03GPU\x12\x01a")},
		},
		RegisteredDevices: map[string][]string{"example.com/gpu": {"b", "a"}, "example.com/nic": {}},
	},
	`{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":3467439661}`: {RegisteredDevices: map[string][]string{}},
}

// A kubelet's file is read, and ours is the same, its checksum included: each takes the other's.
func TestTheKubeletsForm(t *testing.T) {
	for text, data := range kubelets {
		if got, err := Decode([]byte(text)); err != nil || !reflect.DeepEqual(got, data) {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
		if got, err := Encode(data); err != nil || string(got) != text {
			t.Errorf("%s, want %s: %v", got, text, err)
		}
		if _, err := Decode([]byte(strings.Replace(text, `"Checksum":`, `"Checksum":1`, 1))); err == nil {
			t.Error("another checksum is taken")
		}
	}
	if _, err := Decode([]byte(`{"Data"`)); err == nil {
		t.Error("half a file is taken")
	}
}
