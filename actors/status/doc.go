// Package status is the actor that writes to the API server what becomes of this node's pods: their statuses, the removal of
// those that are over, and the mirror pods that stand there for static ones.
//
// There is one line of work for each pod. It holds the newest status that is wanted beside the object that was observed
// last, and from these two alone follows what is written next (evaluate.go). Nothing is written before both are known, and
// nothing that changes nothing. What a write gives back stands for the observed object until that has caught up.
package status
