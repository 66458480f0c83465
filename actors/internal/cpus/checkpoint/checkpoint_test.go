package checkpoint

import (
	"reflect"
	"strings"
	"testing"

	"k8s.io/utils/cpuset"
)

// kubelets are files that kubelets wrote: two of Kubernetes' documentation of strict-cpu-reservation, and one of release 1.34.
var kubelets = map[string]Data{
	`{"policyName":"static","defaultCpuSet":"0-63","checksum":1058907510}`: {"static", parse("0-63"), assignments{}},
	`{"policyName":"static","defaultCpuSet":"2-15,17-31,34-47,49-63","checksum":4141502832}`: {
		"static", parse("2-15,17-31,34-47,49-63"), assignments{}},
	`{"policyName":"static","defaultCpuSet":"0-1,6-11","entries":{"4aec46af-22b7-4e26-babb-d15383ac9151":{"mysqld":"2-3"},` +
		`"60008d73-6f6f-4467-96c5-cd0a1eeadf23":{"mysqld2":"4-5"}},"checksum":2764424633}`: {"static", parse("0-1,6-11"), assignments{
		"4aec46af-22b7-4e26-babb-d15383ac9151": {"mysqld": parse("2-3")},
		"60008d73-6f6f-4467-96c5-cd0a1eeadf23": {"mysqld2": parse("4-5")},
	}},
}

type assignments = map[string]map[string]cpuset.CPUSet

func parse(s string) cpuset.CPUSet {
	set, err := cpuset.Parse(s)
	if err != nil {
		panic(err)
	}
	return set
}

func TestCheckpoint_EqualsTheKubelets(t *testing.T) {
	for text, data := range kubelets {
		if got, err := Decode([]byte(text)); err != nil || !reflect.DeepEqual(got, data) {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
		if got, err := Encode(data); err != nil || string(got) != text {
			t.Errorf("encoded %s, want %s: %v", got, text, err)
		}
	}
}

func TestDecode_RefusesDamage(t *testing.T) {
	for text, want := range map[string]string{
		`{"policyName":"static","defaultCpuSet":"0-62","checksum":1058907510}`: "checkpoint is corrupted",
		`{"policyName"`: "unexpected end",
		`{"policyName":"static","defaultCpuSet":"0-","checksum":0}`:                                   "default cpu set",
		`{"policyName":"static","defaultCpuSet":"0","entries":{"u":{"c":"x"}},"checksum":0}`:          "for container \"c\" in pod \"u\"",
		`{"policyName":"static","defaultCpuSet":"0","podEntries":{"u":{"cpuSet":"1"}},"checksum":12}`: "newer version of the format: unknown fields podEntries;",
	} {
		if _, err := Decode([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", text, err, want)
		}
	}
	if _, err := Decode([]byte(`{"policyName":"none","defaultCpuSet":"","checksum":0}`)); err != nil {
		t.Errorf("checksum 0: %v", err)
	}
}
