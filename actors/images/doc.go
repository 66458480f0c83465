// Package images is the actor "images": it sees to it that the images that starting containers need are there.
//
// Pods tell it needs by PullImage, each by policy. The machine is its pure core: every image has at most one look
// (ImageStatus) under way, and one pull for all who show its registry the same credentials. Pulls wait in a queue that is
// fair between registries (queue.go), within the rate that the configuration sets (bucket.go); credentials are found in
// pull secrets and in the node's docker configuration (keys.go). What fails is told with its reason and tried again, with
// back-off, for as long as somebody needs it. A pull lives in the table of operations, so an actor that was restarted joins
// those that its predecessor began.
//
// One pull serves all pods that show the registry the same credentials. A pod with other credentials gets a pull of its
// own: it may be refused what another may have, and a refused pull holds up nobody else. Pulls wait in one queue with a
// lane for each registry. Within a lane the oldest pod goes first; among lanes the one with the fewest pulls under way.
// Where several registries were used within the hour, one of them gets all slots but one, so that a slow registry stops no
// other. Without a configured bound there are 32 slots, 16 for one registry. Where registryPullQPS is used up a pull
// waits; the kubelet fails it.
//
// The back-off belongs to the image with its credentials, so that a changed Secret is tried at once. Credentials are those
// of the pod's pull secrets, the most specific first, then those of the node's docker configuration, then none. Messages
// of the runtime are searched for credentials before they go anywhere. A registry that cannot be reached, or that answers
// 502, 503 or 504, gives RegistryUnavailable. CRI reports no progress of a pull: its duration or its place in the queue is
// shown.
package images
