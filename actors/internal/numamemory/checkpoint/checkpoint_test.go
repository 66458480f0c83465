package checkpoint

import (
	v1 "k8s.io/api/core/v1"
	"reflect"
	"strings"
	"testing"
)

// kubelets are files with the checksums of kubelets: of the policy None in a published listing, and one of the kubelet's tests.
var kubelets = map[string]Data{
	`{"policyName":"None","machineState":{},"checksum":4236770233}`: {"None", nodes{}, entries{}},
	`{"policyName":"static","machineState":{"0":{"numberOfAssignments":0,"memoryMap":{"memory":{"total":2048,"systemReserved":512,` +
		`"allocatable":1536,"reserved":512,"free":1024}},"cells":[]}},"entries":{"pod":{"container1":[{"numaAffinity":[0],` +
		`"type":"memory","size":512}]}},"checksum":4215593881}`: {"static",
		nodes{0: {MemoryMap: map[v1.ResourceName]*Table{"memory": {2048, 512, 1536, 512, 1024}}, Cells: []int{}}},
		entries{"pod": {"container1": {{[]int{0}, "memory", 512}}}}},
}

func TestCheckpoint_EqualsTheKubelets(t *testing.T) {
	for text, data := range kubelets {
		if got, err := Decode([]byte(text)); err != nil || !reflect.DeepEqual(got, data) {
			t.Errorf("%s: got %+v, %v", text, got, err)
		}
		if got, err := Encode(data); err != nil || string(got) != text {
			t.Errorf("encoded %s, want %s: %v", got, text, err)
		}
	}
}

func TestDecode_RefusesDamage(t *testing.T) {
	for text, want := range map[string]string{
		`{"policyName":"Static","machineState":{},"checksum":4236770233}`:                  "checkpoint is corrupted",
		`{"policyName":"None","machineState":{},"podEntries":{"u":{}},"checksum":4065319}`: `newer version of the format, which kubelets write`,
		`{"policyName"`: "unexpected end",
		`{"policyName":"Static","machineState":{"0":null},"checksum":0}`:                          "a NUMA node has no content",
		`{"policyName":"Static","machineState":{"0":{"memoryMap":{"memory":null}}},"checksum":0}`: "a type of memory has no content",
	} {
		if _, err := Decode([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", text, err, want)
		}
	}
	if _, err := Decode([]byte(`{"policyName":"None","machineState":{},"checksum":0}`)); err != nil {
		t.Errorf("checksum 0: %v", err)
	}
}
