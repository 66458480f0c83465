package messages

// NodeShutdownObserved reports whether the machine is shutting down. During a shutdown the Node is not ready and no new pod
// is admitted.
//
// Sender: shutdown. Receiver: pods, registration. Reply: none.
// If lost: shutdown sends it again every few seconds.
type NodeShutdownObserved struct{ Underway bool }

// The kubelet's words for pods of a machine that is shutting down.
const (
	ReasonTerminated      = "Terminated"
	TerminatedMessage     = "Pod was terminated in response to imminent node shutdown."
	ReasonNodeShutdown    = "NodeShutdown"
	NodeShutdownMessage   = "Pod was rejected as the node is shutting down."
	NodeShutdownCondition = "node is shutting down"
)
