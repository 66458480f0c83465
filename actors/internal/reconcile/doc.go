// Package reconcile is the one engine for keyed objects with a desired and an actual state. Its drivers are cgroups, volumes,
// and the volumes that CSI drivers have staged.
//
// A room that has such objects gives it a Driver, which does the work, and Rules, which are its policy. The engine
// owns the parts that all such loops share. These are the phases of an object and their edges (phase.go), the decisions
// (machine.go), fair lanes (lanes.go), the removal of orphans (sweep.go), and inspection and counters (inspect.go).
// machine.go allows one operation on an object at a time. It also has generations, deadlines, back-off, and the rules for
// reports and logs. All of these are pure. Reconciler is the thin shell that an actor embeds (reconciler.go). It passes
// messages to the machine and carries out the effects with supervisors.Context. Therefore this package, alone in
// actors/internal, imports supervisors.
//
// Nothing is remembered across a restart of the actor. Clients ask again, operations in progress are joined in the
// process-wide table, and the inventory finds the rest. A lost result is detected at its deadline; a doubled or late one is
// stale.
//
// Other loops in Playlet lack one of the two states. A pull has no actual state: the runtime is asked each time, and the
// decision is about turns. The collection of images has no desired state: it removes by age and disk space. A follower of
// objects makes and removes nothing. A writer of statuses only needs the last write, and registration has one object.
// client-go renews certificates. An allocation of devices is one answer to one pod, and never changes.
package reconcile
