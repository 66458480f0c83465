package runtime

// Inspection is the actor's detail of an inspection.
type Inspection struct {
	Phase    string   `json:"phase"`
	Runtime  Snapshot `json:"runtime"`
	Pods     int      `json:"pods"`     // that the CRI knows of
	ToRead   int      `json:"toRead"`   // pods that wait to be read, or are being read
	Reading  int      `json:"reading"`  // of them, being read
	ToRemove int      `json:"toRemove"` // pods whose remains wait to be removed, or are being removed
	// PodCIDR is the pods' range of addresses that the runtime was told.
	PodCIDR string `json:"podCIDR,omitempty"`
}

// Inspect implements supervisors.Inspectable.
func (a *actor) Inspect() any {
	return Inspection{
		Phase: string(a.phase), Runtime: a.link.snapshot, Pods: len(a.known),
		ToRead: len(a.queue.pods), Reading: a.queue.running, ToRemove: len(a.bin.line) + a.bin.removing, PodCIDR: a.cidrs.actual,
	}
}
