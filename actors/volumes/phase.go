package volumes

// phase is where one pod's volumes are between what is wanted and what was found.
type phase string

const (
	absent     phase = ""           // nothing is known of the pod. → mounting, unmounting
	mounting   phase = "Mounting"   // wanted, being mounted. → mounted, backingOff, refused, abandoning
	mounted    phase = "Mounted"    // wanted and found. → verifying, mounting, unmounting
	verifying  phase = "Verifying"  // asked again: it is looked whether all is still there. → mounted, mounting, unmounting
	backingOff phase = "BackingOff" // failed, tried again later. → mounting, unmounting
	refused    phase = "Refused"    // failed for good, until the pod changes. → mounting, unmounting
	abandoning phase = "Abandoning" // no longer wanted, but still being mounted: that is awaited. → unmounting, mounting
	unmounting phase = "Unmounting" // not wanted, being unmounted. → absent, remounting
	remounting phase = "Remounting" // wanted again, but still being unmounted: that is awaited. → mounting, unmounting
)

// edges is every step that a pod's volumes can take.
var edges = map[phase][]phase{
	absent:     {mounting, unmounting},
	mounting:   {mounted, backingOff, refused, abandoning},
	mounted:    {verifying, mounting, unmounting},
	verifying:  {mounted, mounting, unmounting},
	backingOff: {mounting, unmounting},
	refused:    {mounting, unmounting},
	abandoning: {unmounting, mounting},
	unmounting: {absent, remounting},
	remounting: {mounting, unmounting},
}

// to takes one step in the diagram.
func (p podState) to(next phase) podState {
	for _, allowed := range edges[p.phase] {
		if next == allowed {
			p.phase = next
			return p
		}
	}
	panic("no edge from " + string(p.phase) + " to " + string(next) + " for a pod's volumes")
}
