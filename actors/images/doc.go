// Package images is the actor "images": it sees to it that the images that starting containers need are there.
//
// Pods tell it needs by PullImage, each by policy. The book is its pure core: every image has at most one look
// (ImageStatus) and one pull under way, which all needs of that image share; pulls wait in one queue, older pods first.
// What fails is told with its reason and tried again, with back-off, for as long as somebody needs it. A pull lives in
// the table of operations, so an actor that was restarted joins those that its predecessor began.
package images
