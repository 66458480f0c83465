package messages

import "time"

// Started is the first message an actor gets, also after every restart.
//
// Sender: the supervision layer. Receiver: every actor. Reply: none.
// If lost: it cannot be; it is delivered with the start itself.
type Started struct {
	// Desired is the desired state in the supervisor's record of the actor, which the parent gave it (SpawnWith, Update), or nil.
	Desired any
}

// ChildStarted reports that a child was started. If the supervisor has no desired state for it, the parent sends the child's
// state.
//
// Sender: the supervision layer. Receiver: the child's parent. Reply: the child's desired state, unless Started had it.
// If lost: with the parent, whose restart restarts all its children.
type ChildStarted struct {
	Name  string
	Again bool // true when it ran before and was restarted
}

// ChildStopped reports that a child was stopped by its parent's order, and that its name is free again.
//
// Sender: the supervision layer. Receiver: the parent that stopped it. Reply: none.
// If lost: with the parent, which has no children after its restart.
type ChildStopped struct{ Name string }

// ExitResult is the result of a child that ends itself.
type ExitResult interface {
	// Exit returns the part of the result that decides about a restart.
	Exit() Exit
}

// Exit is an exit of a child, as its strategy judges it.
type Exit struct {
	Code int32  // 0: success
	Run  uint32 // the number of the run that ended
}

// ExitVerdict is a supervisor's decision about a child that ended itself.
type ExitVerdict string

// The verdicts.
const (
	ExitRestarts  ExitVerdict = "restart"
	ExitStops     ExitVerdict = "stop"
	ExitEscalates ExitVerdict = "escalate" // it stays stopped, and its parent has failed with it
)

// ChildExited reports that a child ended itself, with its result and the verdict of its exit strategy. If the verdict is a
// restart, the child is started with the next desired state that its parent gives it. Otherwise its name is free again.
//
// Sender: the supervision layer. Receiver: the child's parent. Reply: none.
// If lost: with the parent, which has no children after its restart.
type ChildExited struct {
	Name    string
	Result  ExitResult
	Verdict ExitVerdict
}

// ChildQuarantined reports that a child panicked more often than its row of the tree allows, and stays stopped.
//
// Sender: the supervision layer. Receiver: the child's parent. Reply: none.
// If lost: the layer's own record of the quarantined actor still appears in health.
type ChildQuarantined struct {
	Name   string
	Reason string
	Until  time.Time // when it is tried again
}

// ServiceStarted reports that a service runs without state. Its clients send their whole desired state again.
//
// Sender: the supervision layer. Receiver: the clients that the service's row of the tree names. Reply: each client's desired
// state.
// If lost: clients repeat unanswered requests when their timeout ends; the pod repeats WatchProbes as described there.
type ServiceStarted struct{ Service Address }

// GetInspection asks an actor for its present activity. The layer answers for every actor.
//
// Sender: anyone outside the tree. Receiver: every actor. Reply: Inspection.
// If lost: the asker's deadline ends its wait.
type GetInspection struct{}

// Inspection is an actor's description of its state.
//
// Sender: the supervision layer, for the actor. Receiver: the asker. Reply: none.
// If lost: the asker's deadline ends its wait.
type Inspection struct {
	Path         string   `json:"path"`
	Kind         string   `json:"kind"`
	Incarnation  uint64   `json:"incarnation"`
	Handled      uint64   `json:"handled"`
	MailboxDepth int64    `json:"mailboxDepth"`
	MailboxMax   int64    `json:"mailboxMax"`
	Working      []string `json:"working,omitempty"` // names of work in progress outside the mailbox
	Children     []string `json:"children,omitempty"`
	Detail       any      `json:"detail,omitempty"`
}

// Subject is implemented by messages about one pod whose fields do not name it.
type Subject interface {
	// PodUID is the UID of the pod that the message is about.
	PodUID() string
}

// Routine is implemented by results and timers that come at a steady rate while nothing happens: the flight recorder leaves
// them out, since they would push everything else out of it.
type Routine interface{ Routine() }
