package reconcile

import "time"

// Counters count what has happened since the actor began.
type Counters struct {
	Begun     uint64 `json:"begun"`
	Succeeded uint64 `json:"succeeded"`
	Failed    uint64 `json:"failed"`
	Overdue   uint64 `json:"overdue"` // operations that gave no result before their deadline
	Stale     uint64 `json:"stale"`   // results of others than the operation under way
	Orphans   uint64 `json:"orphans"` // objects that were left behind
}

// Inspection is what a reconciler says of itself: a copy that marshals to JSON.
type Inspection struct {
	Busy     int                         `json:"busy"`    // operations under way
	Waiting  int                         `json:"waiting"` // objects that wait for a place
	Counters Counters                    `json:"counters"`
	Objects  map[string]ObjectInspection `json:"objects,omitempty"`
}

// ObjectInspection is what it says of one object.
type ObjectInspection struct {
	Phase    Phase      `json:"phase"`
	Remove   bool       `json:"remove,omitempty"` // it is not desired
	Error    string     `json:"error,omitempty"`
	Failures int        `json:"failures,omitempty"` // in a row
	RetryAt  *time.Time `json:"retryAt,omitempty"`
}

// Inspect is what the reconciler says of itself.
func (r *Reconciler[D, A]) Inspect() Inspection { return r.machine.inspect() }

// Each calls a function with what was last learned of each object.
func (r *Reconciler[D, A]) Each(do func(Report[D, A])) {
	for _, key := range r.machine.keys() {
		do(r.machine.objects[key].last())
	}
}

func (m *machine[D, A]) inspect() Inspection {
	in := Inspection{Counters: m.counters, Objects: make(map[string]ObjectInspection, len(m.objects))}
	for _, l := range m.lanes {
		in.Busy += l.busy
		in.Waiting += len(l.line)
	}
	for key, o := range m.objects {
		object := ObjectInspection{Phase: o.phase, Remove: o.remove, Failures: o.fails}
		if o.err != nil {
			object.Error = o.err.Error()
		}
		if at := o.due; o.phase == BackingOff {
			object.RetryAt = &at
		}
		in.Objects[key] = object
	}
	return in
}
