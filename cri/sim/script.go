package sim

import (
	"context"
	"io"
	"time"
)

// Behaviour is what the main process of one container does. The zero value runs for ever and ends with exit code 0 as
// soon as it gets its stop signal.
type Behaviour struct {
	// Exits says that the process ends by itself, After from its start (at once, before StartContainer has answered,
	// when After is not positive), with Code, Reason and Message. An empty Reason becomes containerd's: "Completed" for
	// code 0, else "Error".
	Exits   bool
	After   time.Duration
	Code    int32
	Reason  string
	Message string

	// Term is the reaction to the stop signal.
	Term Term
	// StartError makes StartContainer fail with this text and leaves the container exited with 128, "StartError".
	StartError string

	// Output is written to the log at the start, a line each, when Options.WriteLogs is set.
	Output []string
	// Memory is what stats report, in bytes; 1 MiB when 0.
	Memory uint64
}

// Term is the reaction of a process to its stop signal: ignore it, or end Delay later with Code. A process without a
// handler of its own ends with 143.
type Term struct {
	Ignore bool
	Delay  time.Duration
	Code   int32
}

// RunForever is a well-behaved server.
func RunForever() Behaviour { return Behaviour{} }

// ExitAfter ends with code, d after the start; at once when d is not positive.
func ExitAfter(d time.Duration, code int32) Behaviour {
	return Behaviour{Exits: true, After: d, Code: code}
}

// IgnoringTerm runs for ever and needs SIGKILL.
func IgnoringTerm() Behaviour { return Behaviour{Term: Term{Ignore: true}} }

// Sequence is the behaviour of successive attempts of one container: attempt n takes element n, and the last element
// holds for all later ones. An empty Sequence says nothing.
type Sequence []Behaviour

func (s Sequence) at(attempt uint32) (Behaviour, bool) {
	if len(s) == 0 {
		return Behaviour{}, false
	}
	return s[min(int(attempt), len(s)-1)], true
}

// Script says how containers behave. The first rule that knows a container counts: Func, ByContainer "pod/container",
// ByContainer "container", Default, and at last the zero Behaviour. The functions are called while no lock is
// held and must be safe for concurrent use.
type Script struct {
	// Func decides freely; false passes the question on.
	Func func(Target) (Behaviour, bool)
	// ByContainer is keyed "pod/container" or "container", with metadata names.
	ByContainer map[string]Sequence
	// Default holds for containers that nothing else names.
	Default Sequence

	// Exec answers ExecSync. When nil every command succeeds silently. Its ctx ends with the call.
	Exec func(ctx context.Context, target Target, command []string) ExecResult
	// Stream answers Exec, and Attach, which has no command. When nil every command succeeds silently. The input is empty where
	// the caller passes none on, and what is left unread of it is dropped.
	Stream func(target Target, command []string, input io.Reader) ExecResult
}

// ExecResult is what a command run by ExecSync does: it takes Takes on the runtime's clock, then leaves its output and
// exit code, or fails with Err.
type ExecResult struct {
	Stdout, Stderr string
	Code           int32
	Takes          time.Duration
	Err            error
}

// behaviour finds the rule for the target.
func (s Script) behaviour(t Target) Behaviour {
	if s.Func != nil {
		if b, ok := s.Func(t); ok {
			return b
		}
	}
	for _, key := range []string{t.PodName + "/" + t.Container, t.Container} {
		if b, ok := s.ByContainer[key].at(t.Attempt); ok {
			return b
		}
	}
	b, _ := s.Default.at(t.Attempt)
	return b
}
