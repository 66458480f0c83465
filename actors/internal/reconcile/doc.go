// Package reconcile is the one engine for what is keyed and has a desired and an actual side. Its drivers are cgroups,
// volumes, and the volumes that CSI drivers have staged.
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
// What has a loop of its own lacks one of the two sides. A pull has no actual side to compare with: the runtime is asked
// for the image each time, and what is decided is whose turn it is. The collection of images has no desired side: what
// goes follows from ages and from space at each look. A follower of objects makes and removes nothing, a writer of statuses
// has the last one win, and registration has one object. Certificates are client-go's to renew. An allocation of devices
// is one answer to one pod, and never changes.
package reconcile
