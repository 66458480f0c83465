// Package messages holds every message that Playlet's actors exchange, one file a conversation.
//
// A message is a value. API objects inside it are shared by pointer and immutable once decoded; anything else is
// copied. Commands are imperative (PullImage), facts are past tense (ImagePulled), questions begin with Get.
// Delivery is at most once, so each message says who sends it, who receives it, what answers it, and what repairs
// its loss. A test reads these comments and fails where one of the four is missing.
package messages

//go:generate go test -run TestTableOfMessages . -update
