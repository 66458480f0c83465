// Package checkpoint reads and writes dra_manager_state, the file in which a kubelet keeps the ResourceClaims that are prepared
// on the node: JSON in the format checkpoint.dra.kubelet.k8s.io/v1 of Kubernetes 1.34 and later. The names of the fields are the
// format.
package checkpoint

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

const (
	group      = "checkpoint.dra.kubelet.k8s.io/"
	apiVersion = group + "v1"
	kind       = "DRACheckpoint"
)

// Claim is a ResourceClaim that is prepared, or may be.
type Claim struct {
	ClaimUID  types.UID
	ClaimName string
	Namespace string
	// PodUIDs are the pods that use it.
	PodUIDs sets.Set[string]
	// DriverState has an entry for each driver with an allocated device, also for one that returned no devices.
	DriverState map[string]Driver
}

// Driver has the devices that a driver prepared.
type Driver struct{ Devices []Device }

// Device is a prepared device.
type Device struct {
	PoolName     string
	DeviceName   string
	ShareID      *types.UID // of a device that is allocated in shares (KEP-5075)
	RequestNames []string   // empty: the device belongs to all requests of the claim
	CDIDeviceIDs []string
}

type content struct {
	metav1.TypeMeta
	ClaimInfoStateList []Claim
}

type file struct {
	Data     string
	Checksum uint32
}

// Encode returns the file's text.
func Encode(claims []Claim) ([]byte, error) {
	data, err := json.Marshal(content{metav1.TypeMeta{Kind: kind, APIVersion: apiVersion}, claims})
	if err != nil {
		return nil, err
	}
	return json.Marshal(file{string(data), crc32.ChecksumIEEE(data)})
}

// Decode reads the file's text. A damaged one, or one of another format, is an error.
func Decode(text []byte) ([]Claim, error) {
	var f file
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, err
	}
	if is := crc32.ChecksumIEEE([]byte(f.Data)); is != f.Checksum {
		return nil, fmt.Errorf("its checksum is %d and should be %d", f.Checksum, is)
	}
	var c content
	if err := json.Unmarshal([]byte(f.Data), &c); err != nil {
		return nil, err
	}
	if c.Kind != kind || !strings.HasPrefix(c.APIVersion, group) {
		return nil, fmt.Errorf("it is a %s of %s and should be a %s of %s", c.Kind, c.APIVersion, kind, apiVersion)
	}
	for _, claim := range c.ClaimInfoStateList {
		if claim.ClaimName == "" || claim.Namespace == "" || claim.ClaimUID == "" {
			return nil, fmt.Errorf("a claim of it has no name, namespace or UID: %q, %q, %q", claim.ClaimName, claim.Namespace,
				claim.ClaimUID)
		}
	}
	return c.ClaimInfoStateList, nil
}
