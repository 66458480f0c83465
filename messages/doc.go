// Package messages holds every message that Playlet's actors exchange, one file a conversation.
//
// A message is a value. API objects inside it are shared by pointer and immutable once decoded; anything else is
// copied. Commands are imperative (PullImage), facts are past tense (ImagePulled), questions begin with Get.
// Delivery is at most once. The comment of each message names its sender, its receiver, the reply, and the repair of a loss.
// A test fails where one of the four is missing.
package messages

import (
	_ "embed"
	"strings"
)

//go:generate go test -run TestTableOfMessages . -update

//go:embed README.md
var table string

// Names returns the type names of all messages in alphabetical order, from the generated table.
func Names() (out []string) {
	for line := range strings.Lines(table) {
		if name, ok := strings.CutPrefix(line, "| `"); ok {
			name, _, _ = strings.Cut(name, "`")
			out = append(out, name)
		}
	}
	return out
}
