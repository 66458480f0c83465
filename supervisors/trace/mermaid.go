package trace

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/playlet-dev/playlet/supervisors"
)

// Mermaid is a sequence diagram: messages and calls are arrows, work is a note at its actor. See
// https://mermaid.js.org/syntax/sequenceDiagram.html.
func Mermaid(entries []supervisors.Entry, names Names) string {
	var head, body strings.Builder
	head.WriteString("sequenceDiagram\n")
	lanes := map[string]string{}
	lane := func(name string) string { // participants have names of ours: "end" and others mean something to Mermaid
		if lanes[name] == "" {
			lanes[name] = fmt.Sprintf("a%d", len(lanes))
			fmt.Fprintf(&head, "    participant %s as %s\n", lanes[name], escape(name))
		}
		return lanes[name]
	}
	for _, n := range order(entries) {
		from, to, text := lane(names.Of(n.From)), lane(names.receiver(n.Entry)), names.message(n.Entry)
		if n.Digest != "" {
			text += " (" + n.Digest + ")"
		}
		if n.Forgotten > 0 {
			fmt.Fprintf(&body, "    Note over %s: … %d entries are forgotten\n", to, n.Forgotten)
		}
		switch n.Kind {
		case supervisors.OfWork:
			fmt.Fprintf(&body, "    Note over %s: %s, %s\n", from, escape(text), short(n.Took))
		case supervisors.OfCall:
			fmt.Fprintf(&body, "    %s->>%s: %s\n    %s-->>%s: %s\n", from, to, escape(text), to, from, short(n.Took))
		case supervisors.OfChaos:
			fmt.Fprintf(&body, "    Note over %s: CHAOS: %s\n", to, escape(text))
		case supervisors.OfTimer:
			fmt.Fprintf(&body, "    %s--)%s: %s\n", from, to, escape(text))
		case supervisors.OfMessage:
			fmt.Fprintf(&body, "    %s->>%s: %s\n", from, to, escape(text))
		}
		if n.Panic != "" {
			fmt.Fprintf(&body, "    Note over %s: PANIC: %s\n", to, escape(n.Panic))
		}
	}
	return head.String() + body.String()
}

// escape keeps a text from ending a statement, and from being read as markup or as a directive.
func escape(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case strings.ContainsRune(`#;<>%{}"\`, r):
			fmt.Fprintf(&b, "#%d;", r)
		case unicode.IsControl(r):
			b.WriteByte(' ')
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
