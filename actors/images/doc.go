// Package images is the actor "images": it sees to it that the images that starting containers need are there.
//
// Pods tell it needs by PullImage, each by policy. The book is its pure core: every image has at most one look
// (ImageStatus) under way, and one pull for all who show its registry the same credentials. Pulls wait in a queue that is
// fair between registries (queue.go), within the rate that the configuration sets (bucket.go); credentials are found in
// pull secrets and in the node's docker configuration (keys.go). What fails is told with its reason and tried again, with
// back-off, for as long as somebody needs it. A pull lives in the table of operations, so an actor that was restarted joins
// those that its predecessor began.
package images
