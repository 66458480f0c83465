package cri

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	crierrors "k8s.io/cri-api/pkg/errors"
)

// CallError is a failed CRI call that may succeed when repeated. Its text names the call and the object: "RunPodSandbox
// default/web: …". status.FromError and status.Code find the gRPC status.
type CallError struct {
	Call   string // the CRI method, "StartContainer"
	Object string // a readable name of the object: "default/web", a short ID, an image
	// Answered is set if the runtime itself replied. Without an answer, a call that changes something may have been carried out
	// or not.
	Answered bool
	// NotSent is set if the call was never sent: the context ended while it was queued for a slot.
	NotSent bool
	// Reason is one of the sentinels of k8s.io/cri-api/pkg/errors if the runtime reported one (ErrRegistryUnavailable …), else
	// nil; see errors.Is.
	Reason error
	// Inferred is set if Reason follows from the code or the text, and the runtime did not report it by its name.
	Inferred bool
	// Err is the gRPC status, or the context's error when NotSent.
	Err error
}

func (e *CallError) Error() string {
	where := e.Call
	if e.Object != "" {
		where += " " + e.Object
	}
	if e.NotSent {
		return fmt.Sprintf("%s: not sent, ended while waiting for its turn: %v", where, e.Err)
	}
	s, ok := status.FromError(e.Err)
	if !ok {
		return fmt.Sprintf("%s: %v", where, e.Err)
	}
	switch s.Code() {
	case codes.Unknown, codes.Internal:
		return fmt.Sprintf("%s: %s", where, s.Message())
	case codes.Unavailable:
		if !e.Answered {
			return fmt.Sprintf("%s: the container runtime cannot be reached: %s", where, s.Message())
		}
	case codes.DeadlineExceeded:
		if !e.Answered {
			return fmt.Sprintf("%s: the container runtime gave no answer in time: %s", where, s.Message())
		}
	}
	return fmt.Sprintf("%s: %s (%s)", where, s.Message(), s.Code())
}

// Unwrap exposes the status and the reason to errors.Is and errors.As.
func (e *CallError) Unwrap() []error {
	if e.Reason != nil {
		return []error{e.Err, e.Reason}
	}
	return []error{e.Err}
}

// PermanentError is a call that fails the same way however often it is repeated: the runtime considers the request invalid, or
// does not implement the call.
type PermanentError struct{ *CallError }

// Unwrap exposes the CallError to errors.As.
func (e *PermanentError) Unwrap() error { return e.CallError }

// newCallError wraps err in its type. answered distinguishes a status of the runtime from one invented by the gRPC client.
func newCallError(call, object string, answered bool, err error) error {
	e := &CallError{Call: call, Object: object, Answered: answered, Err: err}
	e.Reason, e.Inferred = reasonOf(e)
	switch status.Code(err) {
	case codes.InvalidArgument, codes.Unimplemented:
		if answered {
			return &PermanentError{e}
		}
	}
	return e
}

// reasonOf returns the reason that CRI transports as the first word of a message, since gRPC statuses carry no Go error
// (cri-api/pkg/errors).
func reasonOf(e *CallError) (reason error, inferred bool) {
	msg := status.Convert(e.Err).Message()
	for _, sentinel := range []error{
		crierrors.ErrRegistryUnavailable, crierrors.ErrSignatureValidationFailed,
		crierrors.ErrRROUnsupported, crierrors.ErrImageVolumeMountFailed,
	} {
		if strings.HasPrefix(msg, sentinel.Error()) {
			return sentinel, false
		}
	}
	// A reachable runtime that answers a pull with "unavailable" refers to the registry, unless it is still starting itself.
	if e.Call != "PullImage" || !e.Answered {
		return nil, false
	}
	switch code := status.Code(e.Err); {
	case code == codes.Unavailable && !notInitialized(msg), (code == codes.Unknown || code == codes.DeadlineExceeded) &&
		registryAway(msg):
		return crierrors.ErrRegistryUnavailable, true
	}
	return nil, false
}

// containerd has no code for an unreachable registry. These are its messages, in all versions: its HTTP client got no answer, or
// the answer came from a proxy before the registry or reports that the registry is down.
var (
	noAnswer = regexp.MustCompile(`failed to do request: `)
	itIsDown = regexp.MustCompile(`(unexpected status|failed with status code).*: 50[234] `)
	// The registry is reachable then: the name, the certificate or the runtime's configuration is wrong.
	otherTrouble = regexp.MustCompile(`x509: |tls: |server gave HTTP response`)
)

func registryAway(msg string) bool {
	return noAnswer.MatchString(msg) && !otherTrouble.MatchString(msg) || itIsDown.MatchString(msg)
}

// notInitialized matches containerd's reply while its CRI plugin still recovers.
func notInitialized(msg string) bool { return strings.Contains(msg, "not initialized yet") }

// Message returns the runtime's message, without call, object and gRPC code: the text a container's waiting state shows. For
// other errors it is err.Error().
func Message(err error) string {
	if e := callError(err); e.Err != nil && !e.NotSent {
		if s, ok := status.FromError(e.Err); ok {
			return s.Message()
		}
	}
	return err.Error()
}

// IsNotFound reports whether the object is unknown to the runtime.
func IsNotFound(err error) bool { return answeredWith(err, codes.NotFound) }

// IsUnimplemented reports whether the runtime does not implement the call. Old runtimes lack GetContainerEvents and
// RuntimeConfig.
func IsUnimplemented(err error) bool { return answeredWith(err, codes.Unimplemented) }

// IsPermanent reports whether repeating the same request is pointless.
func IsPermanent(err error) bool {
	_, ok := errors.AsType[*PermanentError](err)
	return ok
}

// IsTooLarge reports whether the answer exceeds one message of 16 MiB, according to the runtime or to gRPC's client.
func IsTooLarge(err error) bool {
	return answeredWith(err, codes.ResourceExhausted) && strings.Contains(Message(err), "larger than max")
}

// IsUnavailable reports whether the runtime is absent, stopping or still starting, as opposed to rejecting this call.
func IsUnavailable(err error) bool {
	return answeredWith(err, codes.Unavailable) && !errors.Is(err, crierrors.ErrRegistryUnavailable)
}

// IsTimeout reports whether a deadline ended the call, on either side. The change may have been made; IsNotSent excludes that.
func IsTimeout(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || answeredWith(err, codes.DeadlineExceeded)
}

// IsAnswered reports whether the runtime itself replied with the error.
func IsAnswered(err error) bool {
	return callError(err).Answered
}

// IsNotSent reports whether the call never reached the runtime because its context ended in the queue. Such a call can be
// repeated without checking the state.
func IsNotSent(err error) bool {
	return callError(err).NotSent
}

func answeredWith(err error, code codes.Code) bool {
	e := callError(err)
	return !e.NotSent && status.Code(e.Err) == code
}

// callError returns the CallError in err, or the zero value.
func callError(err error) CallError {
	if e, ok := errors.AsType[*CallError](err); ok {
		return *e
	}
	return CallError{}
}

// nameConflict matches the messages about a name that is taken. containerd: `name "web_default_uid_0" is reserved for "9f86…"`;
// CRI-O: `name is reserved`; dockershim's successor: `The container name "/k8s_…" is already in use by container "9f86…"`.
var nameConflict = regexp.MustCompile(`name "[^"]*" is (?:reserved for|already in use by) |name is reserved`)

// IsNameConflict reports whether the name of a sandbox or container to create is taken, most often by the object of an earlier
// call whose answer was lost. Look it up by name and adopt it.
func IsNameConflict(err error) bool {
	e := callError(err)
	return !e.NotSent && (e.Call == "RunPodSandbox" || e.Call == "CreateContainer") &&
		(status.Code(e.Err) == codes.AlreadyExists || nameConflict.MatchString(status.Convert(e.Err).Message()))
}
