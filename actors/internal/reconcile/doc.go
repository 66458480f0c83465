// Package reconcile is the one engine for what is keyed and has a desired and an actual side: cgroups, volumes, and
// what is to come.
//
// A room that has such objects gives it a Driver, which does the work, and Rules, which are its policy. The engine
// owns what every such loop has to get right: the phases of an object and their edges (phase.go), one operation on an
// object at a time, generations, deadlines, back-off, what is reported and logged, and when (machine.go); fair lanes
// (lanes.go); what was left behind (sweep.go); inspection and counters (inspect.go). All that is pure. Reconciler is
// the thin shell that an actor embeds: it hands over messages, and carries the effects out with supervisors.Context
// (reconciler.go), for which this package alone of those in actors/internal imports supervisors.
//
// Nothing is remembered across a restart of the actor. Clients ask again; the operation that is under way is joined
// in the process-wide table; the rest is found by the inventory. A result that is lost is missed at its deadline, one
// that comes twice or late is stale.
//
// # Two drivers to come
//
// CSI. Key "<pod>/<volume>". Desired: driver, handle, attributes, staging path. Actual: the path that was published.
// Ensure is NodeStageVolume and NodePublishVolume, Remove is their opposites by the record beside the mount,
// Inventory lists those records. A lane for each driver, so that one that hangs keeps no other; Judge has a volume
// ensured again that asks for republishing. A volume is staged once for all its pods: that is a second reconciler,
// keyed by handle, whose report opens the first one's objects by Ensure.
//
// Certificates. Key: the name of the signer. Desired: subject and names. Actual: the certificate. Ensure makes the
// request for signing, waits for it and writes the file; Judge sets Again to when it is to be rotated; Retry spreads
// over an hour what many nodes ask of one API server; Touch follows a change of the node's addresses. Nothing is ever
// removed: there is no Sweep.
package reconcile
