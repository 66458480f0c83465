package reconcile

import "time"

// Counters count events since the actor started.
type Counters struct {
	Begun     uint64 `json:"begun"`
	Succeeded uint64 `json:"succeeded"`
	Failed    uint64 `json:"failed"`
	Overdue   uint64 `json:"overdue"` // operations that gave no result before their deadline
	Stale     uint64 `json:"stale"`   // results of operations that are no longer current
	Orphans   uint64 `json:"orphans"` // objects that were left behind
}

// Inspection is the state of a reconciler, as a copy that marshals to JSON.
type Inspection struct {
	Busy     int                         `json:"busy"`    // operations in progress
	Waiting  int                         `json:"waiting"` // objects that wait for a place
	Counters Counters                    `json:"counters"`
	Objects  map[string]ObjectInspection `json:"objects,omitempty"`
}

// ObjectInspection is the state of one object.
type ObjectInspection struct {
	Phase    Phase      `json:"phase"`
	Remove   bool       `json:"remove,omitempty"` // it is not desired
	Error    string     `json:"error,omitempty"`
	Failures int        `json:"failures,omitempty"` // in a row
	RetryAt  *time.Time `json:"retryAt,omitempty"`
}

// Inspect returns the state of the reconciler.
func (r *Reconciler[D, A]) Inspect() Inspection { return r.machine.inspect() }

// Each calls do with the latest result of each object.
func (r *Reconciler[D, A]) Each(do func(Report[D, A])) {
	for _, key := range r.machine.keys() {
		do(r.machine.objects[key].lastReport())
	}
}

func (m *machine[D, A]) inspect() Inspection {
	in := Inspection{Counters: m.counters, Objects: make(map[string]ObjectInspection, len(m.objects))}
	for _, l := range m.lanes {
		in.Busy += l.busy
		in.Waiting += len(l.queue)
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
