package messages

// ContainersChanged says that containers came, started, ended or went: their logs are worth a look before the next
// regular one. It names none, since whoever looks, looks at all of them.
//
// Sender: runtime. Receiver: logs. Reply: none.
// If lost: logs looks again after containerLogMonitorInterval.
type ContainersChanged struct{}
