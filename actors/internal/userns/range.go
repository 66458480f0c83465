// Package userns gives each pod with hostUsers: false a range of user and group IDs of its own (KEP-127). range.go has ranges and
// their choice, bounds.go the IDs that the node's administrator set aside, ranges.go the records in the pods' folders.
//
// A range has no owner but its record, <root-dir>/pods/<uid>/userns, and the sandboxes that run with it. Both are read whenever a
// range is chosen, so that nothing has to be released: a range is free when the pod's folder is gone and the runtime has no
// sandbox of the pod. A crash at any point loses nothing.
package userns

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Unit is the default number of IDs in a range. Every length is a multiple of it.
const Unit = 65536

// Range is a range of IDs of the host, for users and groups alike. ID 0 of the pod is First.
type Range struct{ First, Length uint32 }

// String returns the first and the last ID.
func (r Range) String() string { return fmt.Sprintf("%d-%d", r.First, r.end()-1) }

func (r Range) end() uint64 { return uint64(r.First) + uint64(r.Length) }

func (r Range) overlaps(other Range) bool {
	return uint64(r.First) < other.end() && uint64(other.First) < r.end()
}

// Namespace returns the CRI's description of a user namespace with the range.
func (r Range) Namespace() *runtimeapi.UserNamespace {
	mapping := func() []*runtimeapi.IDMapping {
		return []*runtimeapi.IDMapping{{HostId: r.First, ContainerId: 0, Length: r.Length}}
	}
	return &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: mapping(), Gids: mapping()}
}

// ofRuntime returns the range of a user namespace of the runtime; zero if it is the host's, or has no single range.
func ofRuntime(n *runtimeapi.UserNamespace) Range {
	if n.GetMode() != runtimeapi.NamespaceMode_POD || len(n.GetUids()) != 1 {
		return Range{}
	}
	return Range{First: n.GetUids()[0].GetHostId(), Length: n.GetUids()[0].GetLength()}
}

// record is the kubelet's file about a pod's range.
type record struct {
	UIDs []mapping `json:"uidMappings"`
	GIDs []mapping `json:"gidMappings"`
}

type mapping struct {
	Host      uint32 `json:"hostId"`
	Container uint32 `json:"containerId"`
	Length    uint32 `json:"length"`
}

// encode returns the record of the range in the kubelet's form.
func (r Range) encode() ([]byte, error) {
	one := []mapping{{Host: r.First, Length: r.Length}}
	return json.Marshal(record{UIDs: one, GIDs: one})
}

// decode reads a record. It accepts the records that a kubelet accepts, whatever their length: the number of IDs per pod may have
// changed since.
func decode(data []byte) (Range, error) {
	var r record
	if err := json.Unmarshal(data, &r); err != nil {
		return Range{}, err
	}
	switch {
	case len(r.UIDs) != 1 || !slices.Equal(r.UIDs, r.GIDs):
		return Range{}, errors.New("it needs one mapping, the same for users and groups")
	case r.UIDs[0].Container != 0:
		return Range{}, errors.New("it does not map ID 0")
	}
	out := Range{r.UIDs[0].Host, r.UIDs[0].Length}
	return out, out.check()
}

// check returns an error if a pod may not have the range.
func (r Range) check() error {
	switch {
	case r.First < Unit:
		return fmt.Errorf("the range %s has IDs below %d, which are the host's own", r, Unit)
	case r.Length == 0 || r.Length%Unit != 0 || r.end() > 1<<32:
		return fmt.Errorf("a range of %d IDs from %d is not a multiple of %d IDs", r.Length, r.First, Unit)
	}
	return nil
}

// choose returns the first range of that many IDs within the bounds that overlaps no range in use. Candidates begin at multiples
// of the length, as a kubelet's. If all are in use, ok is false.
func choose(within Range, length uint32, used []Range) (free Range, ok bool) {
	used = slices.SortedFunc(slices.Values(used), func(a, b Range) int { return cmp.Compare(a.First, b.First) })
	for first := uint64(within.First); first+uint64(length) <= within.end(); first += uint64(length) {
		free = Range{uint32(first), length} //nolint:gosec // within the bounds, which are 32 bits
		for len(used) > 0 && used[0].end() <= first {
			used = used[1:]
		}
		if !slices.ContainsFunc(used[:min(len(used), 1)], free.overlaps) {
			return free, true
		}
	}
	return Range{}, false
}
