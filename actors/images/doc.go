// Package images is the actor "images": it sees to it that the images that starting containers need are there.
//
// Pods tell it needs by PullImage, each by policy. The machine is its pure core: every image has at most one look
// (ImageStatus) under way, and one pull for all who show its registry the same credentials. A pod with other credentials gets a
// pull of its own: it may be refused what another may have, and a refused pull holds up nobody else. What fails is told with its
// reason and tried again, with back-off, for as long as somebody needs it. A pull lives in the table of operations, so an actor
// that was restarted joins those that its predecessor began.
//
// Pulls wait in a queue (queue.go) with a line for each namespace and registry (lanes). Within a line the oldest pod goes first;
// among lines the namespace with the fewest pulls, then the registry. Where several were used within the hour, a namespace gets
// at most half of the slots that others leave, and a registry all but one. A pull gives its slot away and goes on: after a minute
// to a namespace that has none, after two hours to any. Without a configured bound there are 32 slots, 16 for one registry. Where
// registryPullQPS is used up a pull waits; the kubelet fails it.
//
// The back-off belongs to the image with its credentials, so that a changed Secret is tried at once. Credentials (keys.go)
// are those of the pod's pull secrets, the most specific first, then those of the node's docker configuration, then those of
// credential provider plugins (provider), which may want a token of the pod's service account, then none. Messages of the
// runtime are searched for credentials before they go anywhere. A registry that cannot be reached, or that answers 502, 503
// or 504, gives RegistryUnavailable. CRI reports no progress of a pull: its duration or its place in the queue is shown.
//
// Which image was pulled with which credentials is kept on the disk (pullrecord), in the kubelet's files. A look brings what
// they say of the image, and who may not use it by that, as imagePullCredentialsVerificationPolicy has it, is sent to a pull
// of its own or, where it must not pull, told so. A pull notes itself before it begins, and what it was shown before a pod is
// answered, so that one whose end nobody saw lets nobody in. An image that a service account's token brought is for pods of this
// account: where nothing else lets one in, the plugins are asked (check.go), as the kubelet does. Each survey of the collection
// forgets what is gone.
//
// # Collection
//
// Images that nobody uses are removed: every five minutes, where the use of their file system has reached the high threshold,
// down to the low one; those that were unused for imageMaximumGCAge at any use; and all of them when eviction tells
// ReclaimImages, whose reply is ImagesReclaimed. A collection is a survey (images, containers, the file system), a decision
// (decide in collect.go, pure), and removals, one at a time, in the table of operations. Two actors take part, this one and
// eviction. A lost ReclaimImages is told again with a later measurement, a lost reply costs eviction its wait.
//
// An image stays that a container here names, dead ones included, that is pinned, that is the sandboxes', that a pod names whose
// container has not ended, and that a pod asks for or was told to be there (a lease, for an hour at most: a ForgetImages that is
// lost holds an image for that long). This is looked at again before each removal. After a start nothing is removed until all
// pods are known, for a minute at most: leases are gone with the actor that gave them. What a person asks for by "playlet images"
// (asked.go) goes by the same: a removal is a collection of that one image, a list says of each image what a collection would
// find. A pod that asks for the image that is being removed is answered when it is gone. When an image came and when it was used
// is known from the actor's start on only.
package images
