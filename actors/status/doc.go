// Package status is the actor that writes to the API server what becomes of this node's pods: their statuses, the removal of
// those that are over, and the mirror pods that stand there for static ones.
//
// There is one line of work for each pod. It holds the newest status that is wanted beside the object that was observed
// last, and from these two alone follows what is written next (evaluate.go). Nothing is written before both are known, and
// nothing that changes nothing. What a write gives back stands for the observed object until that has caught up.
//
// What differs between desired and observed status is one strategic merge patch with the UID in it. Eight writers work
// side by side: deletions first, then changes of readiness, then the oldest. A change of a pod that is still pending waits
// a second for the next one. After a conflict or 404 with another UID the pod is forgotten; other failures are tried again
// with back-off. A pod is deleted after its final status was written, with the UID as precondition and zero grace.
//
// Mirror pods: each desired static pod has one, made again or removed by the UID in kubernetes.io/config.mirror. None is
// removed before every source was heard. The API server admits none that refers to other objects: such a static pod runs,
// is not shown there, and health says so.
package status
