// Package images implements the actor "images": it provides the images that starting containers need.
//
// Pods send their needs with PullImage, each with its pull policy. The machine is the pure core. Every image has at most one look
// (ImageStatus) in progress, and one pull for all needs with the same credentials. A pod with other credentials gets a pull of
// its own, because the registry may refuse one pod and accept another. A refused pull does not block the others. Failures are
// reported with their reason and retried, with back-off, as long as a need exists. Pulls run in the table of operations, so that
// a restarted actor joins the pulls of its predecessor.
//
// Pulls wait in a queue (queue.go) with a line for each namespace and registry (lanes). Within a line the oldest pod goes first.
// Among lines the namespace with the fewest pulls goes first, then the registry with the fewest. If several were used within the
// last hour, a namespace gets at most half of the slots that others leave, and a registry all but one. A pull may give its slot
// away and continue: after a minute to a namespace without a pull, after two hours to any. Without a configured limit there are
// 32 slots, 16 for one registry. A pull beyond registryPullQPS waits; the kubelet fails it.
//
// The back-off belongs to the image with its credentials, so that a changed Secret is tried at once. Credentials (credentials.go)
// are tried in this order: the pod's pull secrets, the most specific first; the node's docker configuration; credential provider
// plugins (provider), which may require a token of the pod's service account; none. Credentials are removed from the runtime's
// messages before any use. A failed pull results in ErrImagePull, and in RegistryUnavailable only if the runtime reports that by
// name, as with the kubelet: CRI-O does, containerd does not. The CRI reports no progress of a pull, so its duration or its place
// in the queue is shown.
//
// The credentials of each pull are recorded on disk (pullrecord), in the kubelet's files. A look also reads the image's record.
// imagePullCredentialsVerificationPolicy decides from it which pods may use the image. A refused pod gets a pull of its own or,
// if it must not pull, the reason. A pull is recorded before it begins, and its credentials before a pod is answered. So a pull
// without a recorded end admits no pod. An image pulled with a service account's token is for pods of this account: if nothing
// else admits a pod, the plugins are asked (check.go), as in the kubelet. Each survey of the collection drops the records of
// removed images.
//
// # Collection
//
// Unused images are removed. Every five minutes, if the use of their file system has reached the high threshold, images are
// removed down to the low one. Images unused for imageMaximumGCAge are removed at any use. ReclaimImages from eviction removes
// all unused images; its reply is ImagesReclaimed. A collection is a survey (images, containers, the file system), a decision
// (decide in collect.go, pure), and removals, one at a time, in the table of operations. Two actors take part, this one and
// eviction. A lost ReclaimImages is repeated with a later measurement; after a lost reply eviction waits for its timeout.
//
// An image is kept if a container on this node, dead ones included, refers to it, if it is pinned, or if it is the sandbox image.
// It is also kept if a pod refers to it in a container that has not ended, or needs it. An image reported to a pod is kept by a
// lease of at most an hour, the cost of a lost ForgetImages. All this is checked again before each removal. After a start nothing
// is removed until all pods are known, for at most a minute, since leases do not survive a restart of the actor. The same rules
// apply to "playlet images" (asked.go). A removal is a collection of one image. A list shows the finding of a collection for each
// image. A pod that needs an image during its removal is answered after the removal. The times of an image's arrival and of its
// last use are known only since the actor's start.
package images
