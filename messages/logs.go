package messages

// ContainersChanged lists the containers of a pod when one of them was created, started, ended or was removed. The logs actor
// then looks at their logs before its next regular check. The list is empty for a pod that is gone.
//
// Sender: runtime. Receiver: logs. Reply: none.
// If lost: the next audit sends it for every pod.
type ContainersChanged struct{ Facts PodFacts }
