package checkpoint

import (
	"encoding/json"
	"hash/crc32"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

// recorded is a file of a kubelet 1.36.
const recorded = `{"Data":"{\"kind\":\"DRACheckpoint\",\"apiVersion\":\"checkpoint.dra.kubelet.k8s.io/v1\",\"ClaimInfoStateList\":[{\"ClaimUID\":\"067798be-454e-4be4-9047-1aa06aea63f7\",\"ClaimName\":\"example\",\"Namespace\":\"default\",\"PodUIDs\":{\"139cdb46-f989-4f17-9561-ca10cfb509a6\":{}},\"DriverState\":{\"test-driver.cdi.k8s.io\":{\"Devices\":[{\"PoolName\":\"worker-1\",\"DeviceName\":\"dev-1\",\"ShareID\":null,\"RequestNames\":[\"test request\"],\"CDIDeviceIDs\":[\"example.com/example=cdi-example\"]},{\"PoolName\":\"worker-1\",\"DeviceName\":\"dev-2\",\"ShareID\":\"78ee5aef-fb8a-4d3e-bac9-53f7cbb83d0d\",\"RequestNames\":null,\"CDIDeviceIDs\":null}]},\"other.example.org\":{\"Devices\":null}}}]}","Checksum":CRC}`

func sealed(text string) string {
	var f struct{ Data string }
	_ = json.Unmarshal([]byte(strings.Replace(text, "CRC", "0", 1)), &f)
	sum, _ := json.Marshal(crc32.ChecksumIEEE([]byte(f.Data)))
	return strings.Replace(text, "CRC", string(sum), 1)
}

func TestAKubeletsFile(t *testing.T) {
	share := types.UID("78ee5aef-fb8a-4d3e-bac9-53f7cbb83d0d")
	want := []Claim{{
		ClaimUID: "067798be-454e-4be4-9047-1aa06aea63f7", ClaimName: "example", Namespace: "default",
		PodUIDs: sets.New("139cdb46-f989-4f17-9561-ca10cfb509a6"),
		DriverState: map[string]Driver{
			"test-driver.cdi.k8s.io": {Devices: []Device{
				{PoolName: "worker-1", DeviceName: "dev-1", RequestNames: []string{"test request"},
					CDIDeviceIDs: []string{"example.com/example=cdi-example"}},
				{PoolName: "worker-1", DeviceName: "dev-2", ShareID: &share},
			}},
			"other.example.org": {},
		},
	}}
	text := sealed(recorded)
	got, err := Decode([]byte(text))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	var then, now struct{ Data string }
	again, err := Encode(got)
	if err != nil {
		t.Fatal(err)
	}
	_ = json.Unmarshal([]byte(text), &then)
	_ = json.Unmarshal(again, &now)
	var a, b any
	_ = json.Unmarshal([]byte(then.Data), &a)
	_ = json.Unmarshal([]byte(now.Data), &b)
	if !reflect.DeepEqual(a, b) {
		t.Errorf("a kubelet would read %s", now.Data)
	}
}

func TestDamagedFiles(t *testing.T) {
	for name, text := range map[string]string{
		"no JSON":             "{",
		"a changed byte":      strings.Replace(sealed(recorded), "dev-1", "dev-9", 1),
		"data that is none":   sealed(`{"Data":"[]","Checksum":CRC}`),
		"another kind":        sealed(`{"Data":"{\"kind\":\"Other\",\"apiVersion\":\"checkpoint.dra.kubelet.k8s.io/v1\"}","Checksum":CRC}`),
		"another group":       sealed(`{"Data":"{\"kind\":\"DRACheckpoint\",\"apiVersion\":\"other/v1\"}","Checksum":CRC}`),
		"a claim without UID": sealed(`{"Data":"{\"kind\":\"DRACheckpoint\",\"apiVersion\":\"checkpoint.dra.kubelet.k8s.io/v1\",\"ClaimInfoStateList\":[{\"ClaimName\":\"a\",\"Namespace\":\"b\"}]}","Checksum":CRC}`),
	} {
		if got, err := Decode([]byte(text)); err == nil {
			t.Errorf("%s: got %+v", name, got)
		}
	}
	if got, err := Decode([]byte(sealed(`{"Data":"{\"kind\":\"DRACheckpoint\",\"apiVersion\":\"checkpoint.dra.kubelet.k8s.io/v1\",\"ClaimInfoStateList\":null}","Checksum":CRC}`))); err != nil || len(got) > 0 {
		t.Errorf("an empty file: got %v, %v", got, err)
	}
}
