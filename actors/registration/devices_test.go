package registration

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestDevicesOfAKubelet(t *testing.T) {
	const written = `{"Data":{"PodDeviceEntries":[{"PodUID":"u","ContainerName":"c","ResourceName":"example.com/away","DeviceIDs":{"0":["a"]},` +
		`"AllocResp":""},{"PodUID":"v","ContainerName":"c","ResourceName":"example.com/gpu","DeviceIDs":{"0":["b"]},"AllocResp":""}],"RegisteredDevices":{"example.com/nic":[],"example.com/gpu":["a","b"]}},"Checksum":3207014417}`
	for name, c := range map[string]struct {
		text, fault string
		want        []v1.ResourceName
	}{
		"a kubelet's":  {text: written, want: []v1.ResourceName{"example.com/away", "example.com/gpu", "example.com/nic"}},
		"of none":      {text: `{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":1}`},
		"half written": {text: written[:60], fault: "is no checkpoint"},
		"empty":        {fault: "is no checkpoint"},
	} {
		path := filepath.Join(t.TempDir(), "checkpoint")
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := Devices(path)
		if !slices.Equal(got, c.want) || (err == nil) != (c.fault == "") || err != nil &&
			!strings.Contains(err.Error(), c.fault) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	if got, err := Devices(filepath.Join(t.TempDir(), "none")); len(got) > 0 || err != nil {
		t.Errorf("of no file: %v, %v", got, err)
	}
	if _, err := Devices(t.TempDir()); err == nil {
		t.Error("a folder was read")
	}
}
