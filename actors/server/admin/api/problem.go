package api

import (
	"fmt"
	"strings"

	"github.com/playlet-dev/playlet/messages"
)

// ProblemText is one line on a manifest problem: path:line: field: message.
func ProblemText(p messages.ManifestProblem) string {
	var b strings.Builder
	b.WriteString(p.Path)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d", p.Line)
	}
	b.WriteString(": ")
	if p.Field != "" {
		b.WriteString(p.Field + ": ")
	}
	b.WriteString(p.Message)
	if p.KeptLast {
		b.WriteString(" (the last good version keeps running)")
	}
	return b.String()
}
