// Package exits decides about actors that end themselves. A strategy is a value, which the parent gives its supervisor with the
// child. It judges the exit of the child alone.
package exits

import (
	"slices"

	"github.com/playlet-dev/playlet/messages"
)

// RestartType selects the exits after which a child is restarted, in the actor model's terms.
type RestartType string

// The restart types.
const (
	Permanent RestartType = "permanent" // restarted after every exit
	Transient RestartType = "transient" // restarted after an exit that failed
	Temporary RestartType = "temporary" // never restarted
)

// Strategy decides about a child that ends itself; its row of the tree decides about panics. It is a value: the decision
// depends on the exit alone.
type Strategy struct {
	Restart RestartType
	// Rules are exceptions to Restart, by exit code. The first rule with the code decides.
	Rules []Rule
	// Escalate makes a failed exit without restart the parent's failure, too. The parent acts on the verdict in ChildExited; it
	// does not panic.
	Escalate bool
	// Run is the number of the present run. After the exit of an earlier run, the child's desired state stays: it belongs to the
	// present one.
	Run uint32
}

// Rule is an exception for some exit codes.
type Rule struct {
	Codes []int32
	Not   bool // the rule is for all codes but these
	// Then is ExitRestarts or ExitStops; empty: Restart decides, whatever the rules after this one.
	Then messages.ExitVerdict
}

// Verdict returns the verdict on an exit. It is pure.
func (s Strategy) Verdict(e messages.Exit) messages.ExitVerdict {
	restarts := s.Restart == Permanent || s.Restart == Transient && e.Code != 0
	i := slices.IndexFunc(s.Rules, func(r Rule) bool { return slices.Contains(r.Codes, e.Code) != r.Not })
	if i >= 0 && s.Rules[i].Then != "" {
		restarts = s.Rules[i].Then == messages.ExitRestarts
	}
	switch {
	case restarts:
		return messages.ExitRestarts
	case s.Escalate && e.Code != 0:
		return messages.ExitEscalates
	default:
		return messages.ExitStops
	}
}
