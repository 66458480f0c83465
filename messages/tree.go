package messages

import "time"

// Started is the first message an actor gets, also after every restart.
//
// Sender: the supervision layer. Receiver: every actor. Reply: none.
// If lost: it cannot be; it is delivered with the start itself.
type Started struct{}

// ChildStarted says that a child runs and knows nothing yet; its parent answers by sending it its whole desired state.
//
// Sender: the supervision layer. Receiver: the child's parent. Reply: the child's desired state, to the child.
// If lost: with the parent, whose restart starts all its children anew.
type ChildStarted struct {
	Name  string
	Again bool // true when it ran before and was restarted
}

// ChildStopped says that a child was stopped on its parent's order, and that its name is free again.
//
// Sender: the supervision layer. Receiver: the parent that stopped it. Reply: none.
// If lost: with the parent, whose restart has no children.
type ChildStopped struct{ Name string }

// ExitVerdict is what a supervisor does about a child that ended itself.
type ExitVerdict string

// The verdicts.
const (
	ExitRestarts  ExitVerdict = "restart"
	ExitStops     ExitVerdict = "stop"
	ExitEscalates ExitVerdict = "escalate" // it stays stopped, and its parent has failed with it
)

// ChildExited says that a child ended itself, with which result, and what the strategy that it was spawned with says of that.
// Its name is free again unless it is restarted; then ChildStarted follows.
//
// Sender: the supervision layer. Receiver: the child's parent. Reply: none.
// If lost: with the parent, whose restart has no children.
type ChildExited struct {
	Name      string
	Result    any
	Verdict   ExitVerdict
	RestartAt time.Time // where it is restarted
}

// ChildQuarantined says that a child panicked more often than its row of the tree allows and is left stopped.
//
// Sender: the supervision layer. Receiver: the child's parent. Reply: none.
// If lost: health names the quarantined actor from what the layer itself keeps.
type ChildQuarantined struct {
	Name   string
	Reason string
	Until  time.Time // when it is tried again
}

// ServiceStarted says that a service runs and remembers nothing; clients resend it their whole desired state.
//
// Sender: the supervision layer. Receiver: the clients that the service's row of the tree names. Reply: each client's desired
// state.
// If lost: clients repeat what is unanswered when their timeout ends; what is to be probed is sent again as of WatchProbes.
type ServiceStarted struct{ Service Address }

// GetInspection asks an actor what it is doing. The layer answers for every actor.
//
// Sender: anyone outside the tree. Receiver: every actor. Reply: Inspection.
// If lost: the asker's deadline ends its wait.
type GetInspection struct{}

// Inspection is what an actor says of itself.
//
// Sender: the supervision layer, for the actor. Receiver: who asked. Reply: none.
// If lost: the asker's deadline ends its wait.
type Inspection struct {
	Path         string   `json:"path"`
	Kind         string   `json:"kind"`
	Incarnation  uint64   `json:"incarnation"`
	Handled      uint64   `json:"handled"`
	MailboxDepth int64    `json:"mailboxDepth"`
	MailboxMax   int64    `json:"mailboxMax"`
	Working      []string `json:"working,omitempty"` // names of work under way outside the mailbox
	Children     []string `json:"children,omitempty"`
	Detail       any      `json:"detail,omitempty"`
}

// Subject is implemented by messages that belong to one pod's story, where their fields do not say so.
type Subject interface {
	// PodUID is the UID of the pod that the message is about.
	PodUID() string
}

// Routine is implemented by results and timers that come at a steady rate while nothing happens: the flight recorder leaves
// them out, since they would push everything else out of it.
type Routine interface{ Routine() }
