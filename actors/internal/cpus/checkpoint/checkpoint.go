// Package checkpoint reads and writes the kubelet's file cpu_manager_state, JSON in its version 2, which kubelets write unless
// the alpha gate PodLevelResourceManagers is on. The kubelet's checksum is over Go's own spelling of the value, in which names
// of types appear: they are part of the format. Newer versions, which that gate writes, have another checksum and are refused.
package checkpoint

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"slices"
	"strings"

	"k8s.io/utils/cpuset"
	"k8s.io/utils/dump"
)

// Data is the content of the file.
type Data struct {
	Policy string
	Shared cpuset.CPUSet
	Given  map[string]map[string]cpuset.CPUSet // by UID and container
}

// file has the kubelet's fields in its order; its checksum depends on both.
type file struct {
	PolicyName    string                       `json:"policyName"`
	DefaultCPUSet string                       `json:"defaultCpuSet"`
	Entries       map[string]map[string]string `json:"entries,omitempty"`
	Checksum      uint64Sum                    `json:"checksum"`
}

type uint64Sum uint64

// Encode returns the file's text.
func Encode(data Data) ([]byte, error) {
	f := file{PolicyName: data.Policy, DefaultCPUSet: data.Shared.String(), Entries: map[string]map[string]string{}}
	for uid, pod := range data.Given {
		f.Entries[uid] = map[string]string{}
		for name, set := range pod {
			f.Entries[uid][name] = set.String()
		}
	}
	f.Checksum = sum(f)
	return json.Marshal(f)
}

// Decode reads the file's text. A damaged one is an error. Like the kubelet, it accepts a checksum of 0.
func Decode(text []byte) (Data, error) {
	f := file{Entries: map[string]map[string]string{}}
	if err := json.Unmarshal(text, &f); err != nil {
		return Data{}, err
	}
	if is := sum(f); f.Checksum != 0 && is != f.Checksum {
		if fields := newer(text); len(fields) > 0 {
			return Data{}, fmt.Errorf("a newer version of the format: unknown fields %s; kubelets write it with the feature "+
				"gate PodLevelResourceManagers", strings.Join(fields, ", "))
		}
		return Data{}, fmt.Errorf("checkpoint is corrupted: its checksum is %d and should be %d", f.Checksum, is)
	}
	out := Data{Policy: f.PolicyName, Given: map[string]map[string]cpuset.CPUSet{}}
	var err error
	if out.Shared, err = cpuset.Parse(f.DefaultCPUSet); err != nil {
		return Data{}, fmt.Errorf("could not parse default cpu set %q: %w", f.DefaultCPUSet, err)
	}
	for uid, pod := range f.Entries {
		out.Given[uid] = map[string]cpuset.CPUSet{}
		for name, text := range pod {
			if out.Given[uid][name], err = cpuset.Parse(text); err != nil {
				return Data{}, fmt.Errorf("could not parse cpuset %q for container %q in pod %q: %w", text, name, uid, err)
			}
		}
	}
	return out, nil
}

// newer returns the fields that version 2 of the format lacks.
func newer(text []byte) []string {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil // Decode has read it
	}
	for _, name := range []string{"policyName", "defaultCpuSet", "entries", "checksum"} {
		delete(fields, name)
	}
	return slices.Sorted(maps.Keys(fields))
}

// sum hashes the spelling of the kubelet's value.
func sum(f file) uint64Sum {
	f.Checksum = 0
	text := strings.Replace(dump.ForHash(&f), "checkpoint.file", "state.CPUManagerCheckpoint", 1)
	text = strings.Replace(text, "checkpoint.uint64Sum", "checksum.Checksum", 1)
	h := fnv.New32a()
	_, _ = io.WriteString(h, text) // a hash takes all
	return uint64Sum(h.Sum32())
}
