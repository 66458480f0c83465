// Package checkpoint reads and writes the kubelet's file memory_manager_state, JSON in its version 1, which kubelets write unless
// the alpha gate PodLevelResourceManagers is on. The kubelet's checksum is over Go's own spelling of the value, in which names of
// types and fields appear: they are part of the format. Version 2, which that gate writes, has another checksum and is refused.
package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/dump"
)

// Data is the content of the file.
type Data struct {
	Policy  string
	Nodes   map[int]*Node                 // by NUMA node; empty with the policy None
	Entries map[string]map[string][]Block // by UID and container
}

// Node is the memory of a NUMA node.
type Node struct {
	NumberOfAssignments int                        `json:"numberOfAssignments"` // blocks, of all types
	MemoryMap           map[v1.ResourceName]*Table `json:"memoryMap"`
	Cells               []int                      `json:"cells"` // the nodes of the blocks that have memory of this one
}

// Table is the memory of one type of a node, in bytes.
type Table struct {
	TotalMemSize   uint64 `json:"total"`
	SystemReserved uint64 `json:"systemReserved"`
	Allocatable    uint64 `json:"allocatable"`
	Reserved       uint64 `json:"reserved"` // allocated to containers
	Free           uint64 `json:"free"`
}

// Block is memory of one type from a set of nodes, in bytes.
type Block struct {
	NUMAAffinity []int           `json:"numaAffinity"`
	Type         v1.ResourceName `json:"type"`
	Size         uint64          `json:"size"`
}

type (
	nodes     map[int]*Node
	entries   map[string]map[string][]Block
	uint64Sum uint64
)

// file has the kubelet's fields in its order; its checksum depends on both.
type file struct {
	PolicyName   string    `json:"policyName"`
	MachineState nodes     `json:"machineState"`
	Entries      entries   `json:"entries,omitempty"`
	Checksum     uint64Sum `json:"checksum"`
}

// names are the kubelet's names of the types.
var names = strings.NewReplacer("checkpoint.file", "state.MemoryManagerCheckpoint", "checkpoint.nodes", "state.NUMANodeMap",
	"checkpoint.Node", "state.NUMANodeState", "checkpoint.Table", "state.MemoryTable",
	"checkpoint.entries", "state.ContainerMemoryAssignments", "checkpoint.Block", "state.Block",
	"checkpoint.uint64Sum", "checksum.Checksum")

// Encode returns the file's text.
func Encode(data Data) ([]byte, error) {
	f := file{PolicyName: data.Policy, MachineState: data.Nodes, Entries: data.Entries}
	if f.MachineState == nil {
		f.MachineState = nodes{}
	}
	if f.Entries == nil {
		f.Entries = entries{}
	}
	f.Checksum = sum(f)
	return json.Marshal(f)
}

// Decode reads the file's text. A damaged one is an error. Like the kubelet, it accepts a checksum of 0.
func Decode(text []byte) (Data, error) {
	f := file{MachineState: nodes{}, Entries: entries{}}
	if err := json.Unmarshal(text, &f); err != nil {
		return Data{}, err
	}
	if is := sum(f); f.Checksum != 0 && is != f.Checksum {
		strict := json.NewDecoder(bytes.NewReader(text))
		strict.DisallowUnknownFields()
		if err := strict.Decode(&file{}); err != nil {
			return Data{}, fmt.Errorf("a newer version of the format, which kubelets write with the feature gate "+
				"PodLevelResourceManagers: %w", err)
		}
		return Data{}, fmt.Errorf("checkpoint is corrupted: its checksum is %d and should be %d", f.Checksum, is)
	}
	for _, n := range f.MachineState {
		if n == nil {
			return Data{}, errors.New("a NUMA node has no content")
		}
		for _, t := range n.MemoryMap {
			if t == nil {
				return Data{}, errors.New("a type of memory has no content")
			}
		}
	}
	return Data{f.PolicyName, f.MachineState, f.Entries}, nil
}

// sum hashes the spelling of the kubelet's value.
func sum(f file) uint64Sum {
	f.Checksum = 0
	h := fnv.New32a()
	_, _ = io.WriteString(h, names.Replace(dump.ForHash(&f))) // a hash takes all
	return uint64Sum(h.Sum32())
}
