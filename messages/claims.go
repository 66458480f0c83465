package messages

import v1 "k8s.io/api/core/v1"

// PrepareClaims asks for the ResourceClaims of a pod (KEP-4381): drivers prepare their devices, before the pod's sandbox is
// created. Asking again is the same question.
//
// Sender: pod. Receiver: resources. Reply: ClaimsPrepared or ClaimsFailed.
// If lost: the pod asks again when its timeout ends.
type PrepareClaims struct {
	UID string
	Pod *v1.Pod
}

// ClaimsPrepared reports that the devices of the pod's claims are ready.
//
// Sender: resources. Receiver: pod. Reply: none.
// If lost: the pod asks again when its timeout ends.
type ClaimsPrepared struct{ UID string }

// ReleaseClaims ends the pod's use of its claims: drivers unprepare those that no other pod uses. Nothing of the pod runs any
// more.
//
// Sender: pod, ender. Receiver: resources. Reply: ClaimsReleased or ClaimsFailed.
// If lost: the sender asks again when its timeout ends.
type ReleaseClaims struct{ UID string }

// ClaimsReleased reports that the pod uses no claims.
//
// Sender: resources. Receiver: pod, ender. Reply: none.
// If lost: the receiver asks again when its timeout ends.
type ClaimsReleased struct{ UID string }

// ClaimsFailed reports that the pod's claims cannot be prepared or released now. The resources actor retries with back-off, and
// sends ClaimsPrepared or ClaimsReleased when it succeeds.
//
// Sender: resources. Receiver: pod, ender. Reply: none.
// If lost: the receiver asks again when its timeout ends.
type ClaimsFailed struct {
	UID    string
	Reason Reason
	// Release is true for a release.
	Release bool
}

// ClaimDriversChanged reports that a DRA driver has registered. Claims that wait for a driver are tried again.
//
// Sender: the connection to the driver. Receiver: resources. Reply: none.
// If lost: the claims are tried again after their back-off.
type ClaimDriversChanged struct{}
