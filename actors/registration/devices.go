package registration

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/wholefile"
)

// DevicesPath is where a kubelet keeps which devices its device plugins gave, whatever its root folder is.
const DevicesPath = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"

// Devices are the resources that a kubelet's device plugins gave, in order, those included of which only a container still has
// some; none where there was no kubelet. To count these is not enough to give them to a container, as it is with resources that
// an operator advertises. An error says that the checkpoint at path cannot be read, or that it is no such text.
func Devices(path string) ([]v1.ResourceName, error) {
	text, err := wholefile.Reading{Insist: true}.Read(path) // a half written one is no checkpoint, which is said
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s, the checkpoint of the kubelet's device plugins, cannot be read: %w", path, err)
	}
	var checkpoint struct {
		Data struct {
			PodDeviceEntries  []struct{ ResourceName v1.ResourceName }
			RegisteredDevices map[v1.ResourceName][]string
		}
	}
	if err := json.Unmarshal(text, &checkpoint); err != nil {
		return nil, fmt.Errorf("%s is no checkpoint of the kubelet's device plugins: %w", path, err)
	}
	names := slices.Collect(maps.Keys(checkpoint.Data.RegisteredDevices))
	for _, entry := range checkpoint.Data.PodDeviceEntries {
		names = append(names, entry.ResourceName)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}
