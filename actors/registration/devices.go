package registration

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"syscall"
)

// DevicesPath is where a kubelet keeps which devices its device plugins gave, whatever its root folder is.
const DevicesPath = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"

// AnyDevice is the pattern of all resources that may be of a device plugin.
const AnyDevice = "*/*"

// maxDevices is, in bytes, far above the size of a checkpoint, which has a line for each device and for each container that has one.
const maxDevices = 16 << 20

// Devices are the resources that a kubelet's device plugins gave, in order, those included of which only a container still has some;
// none where there was no kubelet. To count these is not enough to give them to a container, as it is with resources that an operator
// advertises. An error says that the checkpoint at path cannot be read, or that it is no such text.
func Devices(path string) ([]string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe would block
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("the checkpoint of the kubelet's device plugins cannot be read: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	text, err := io.ReadAll(io.LimitReader(f, maxDevices))
	if err != nil {
		return nil, fmt.Errorf("the checkpoint of the kubelet's device plugins cannot be read: %w", err)
	}
	var checkpoint struct {
		Data struct {
			PodDeviceEntries  []struct{ ResourceName string }
			RegisteredDevices map[string][]string
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
