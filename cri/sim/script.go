package sim

import (
	"context"
	"io"
	"time"
)

// Behaviour is the behaviour of the main process of one container. The zero value runs forever and exits with code 0 on its stop
// signal.
type Behaviour struct {
	// Exits makes the process exit by itself, After from its start (at once, before StartContainer has answered, if After is not
	// positive), with Code, Reason and Message. An empty Reason becomes containerd's: "Completed" for code 0, else "Error".
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
	// Memory is the usage reported by stats, in bytes; 1 MiB if 0.
	Memory uint64
}

// Term is the reaction of a process to its stop signal: ignore it, or exit Delay later with Code. A process without a handler of
// its own exits with 143.
type Term struct {
	Ignore bool
	Delay  time.Duration
	Code   int32
}

// RunForever returns the behaviour of a well-behaved server.
func RunForever() Behaviour { return Behaviour{} }

// ExitAfter returns a process that exits with code, d after the start; at once if d is not positive.
func ExitAfter(d time.Duration, code int32) Behaviour {
	return Behaviour{Exits: true, After: d, Code: code}
}

// IgnoringTerm returns a process that runs forever and needs SIGKILL.
func IgnoringTerm() Behaviour { return Behaviour{Term: Term{Ignore: true}} }

// Sequence is the behaviour of successive attempts of one container: attempt n uses element n, and later ones the last element.
// An empty Sequence has no effect.
type Sequence []Behaviour

func (s Sequence) at(attempt uint32) (Behaviour, bool) {
	if len(s) == 0 {
		return Behaviour{}, false
	}
	return s[min(int(attempt), len(s)-1)], true
}

// Script is the behaviour of containers. The first rule that matches a container counts: Func, ByContainer "pod/container",
// ByContainer "container", Default, and at last the zero Behaviour. The functions are called without a lock held and must be safe
// for concurrent use.
type Script struct {
	// Func decides freely; false continues with the next rule.
	Func func(Target) (Behaviour, bool)
	// ByContainer is keyed "pod/container" or "container", with metadata names.
	ByContainer map[string]Sequence
	// Default applies to containers without another rule.
	Default Sequence

	// Exec answers ExecSync. If nil, every command succeeds silently. Its ctx ends with the call.
	Exec func(ctx context.Context, target Target, command []string) ExecResult
	// Stream answers Exec, and Attach, which has no command. If nil, every command succeeds silently. The input is empty if the
	// caller sends none, and unread input is dropped.
	Stream func(target Target, command []string, input io.Reader) ExecResult
}

// ExecResult is the result of a command run by ExecSync: it takes Takes on the runtime's clock, then returns its output and exit
// code, or fails with Err.
type ExecResult struct {
	Stdout, Stderr string
	Code           int32
	Takes          time.Duration
	Err            error
}

// behaviour returns the rule for the target.
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
