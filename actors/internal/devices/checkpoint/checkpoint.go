// Package checkpoint reads and writes the file in which a kubelet keeps which devices its device plugins gave to containers:
// kubelet_internal_checkpoint, JSON of the same shape in all releases since 1.20. The kubelet's checksum is over Go's own
// spelling of the value, in which names of types and of this package appear: they are part of the format.
package checkpoint

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"

	"k8s.io/utils/dump"
)

// NoNode is the NUMA node of a device without a reported node.
const NoNode = -1

// DevicesPerNUMA are IDs of devices by their NUMA node. One that is near to two nodes is in both.
type DevicesPerNUMA map[int64][]string

// PodDevicesEntry is one container's allocation of one resource.
type PodDevicesEntry struct {
	PodUID        string
	ContainerName string
	ResourceName  string
	DeviceIDs     DevicesPerNUMA
	AllocResp     []byte // the plugin's answer, a ContainerAllocateResponse of v1beta1
}

type checkpointData struct {
	PodDeviceEntries  []PodDevicesEntry
	RegisteredDevices map[string][]string // IDs of healthy ones by resource
}

// Data is the content of the file.
type Data = checkpointData

type file struct {
	Data     checkpointData
	Checksum uint64
}

// Encode is the file's text.
func Encode(data Data) ([]byte, error) {
	return json.Marshal(file{data, sum(data)})
}

// Decode reads the file's text. A damaged one is an error.
func Decode(text []byte) (Data, error) {
	var f file
	if err := json.Unmarshal(text, &f); err != nil {
		return Data{}, err
	}
	if is := sum(f.Data); is != f.Checksum {
		return Data{}, fmt.Errorf("its checksum is %d and should be %d", f.Checksum, is)
	}
	return f.Data, nil
}

func sum(data checkpointData) uint64 {
	h := fnv.New32a()
	_, _ = io.WriteString(h, dump.ForHash(data)) // a hash takes all
	return uint64(h.Sum32())
}
