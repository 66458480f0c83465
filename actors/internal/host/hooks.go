package host

// PreStopKey is the key of a container's pre-stop hook in the table of operations.
func PreStopKey(uid, id string) string { return uid + "/prestop/" + id }

// PostStartKey is the key of a container's post-start hook in the table of operations.
func PostStartKey(uid, id string) string { return uid + "/poststart/" + id }

// EndHooks ends the hooks of a container that has ended.
func (h *Host) EndHooks(uid, id string) {
	h.Ops.CutOff(PostStartKey(uid, id))
	h.Ops.CutOff(PreStopKey(uid, id))
}

// EndAllHooks ends all hooks of a pod without running containers. The actor of a container may have missed the container's end.
func (h *Host) EndAllHooks(uid string) {
	for _, prefix := range []string{PostStartKey(uid, ""), PreStopKey(uid, "")} {
		for _, key := range h.Ops.InFlight(prefix) {
			h.Ops.CutOff(key)
		}
	}
}
