package messages

// ContainersChanged lists the containers of a pod, of which one came, started, ended or went: their logs are worth a look
// before the next regular one. Of a pod that is gone it lists none.
//
// Sender: runtime. Receiver: logs. Reply: none.
// If lost: an audit tells every pod again.
type ContainersChanged struct{ Facts PodFacts }
