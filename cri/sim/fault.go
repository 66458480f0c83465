package sim

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Kind is the effect of a fault on a call.
type Kind string

const (
	// Error fails the call without doing its work.
	Error Kind = "Error"
	// Delay makes the call take Fault.Delay longer. Calls that start or create an object spend the time in the middle of their
	// work, with the name already reserved; all others before it.
	Delay Kind = "Delay"
	// Hang blocks the call until its context ends, without doing its work. Cancelling the fault lets it continue.
	Hang Kind = "Hang"
	// Drop does the work and loses the answer: the caller gets Unavailable.
	Drop Kind = "Drop"
	// Swallow does the work and never answers: the caller runs into its own deadline.
	Swallow Kind = "Swallow"
	// Wrong does the work and returns a wrong answer: IDs and image references are empty, states are CONTAINER_UNKNOWN or not
	// ready, and statuses and lists are missing.
	Wrong Kind = "Wrong"
	// CrashBefore takes the runtime Down instead of doing the work, until Up is called.
	CrashBefore Kind = "CrashBefore"
	// CrashAfter does the work, then takes the runtime Down before the answer is sent.
	CrashAfter Kind = "CrashAfter"
)

// eventsCall is the only streaming call. Its faults apply before it begins, so only Error, Delay, Hang and CrashBefore are valid.
const eventsCall = "GetContainerEvents"

// ContainerEvent is the pseudo call for one event sent to the GetContainerEvents streams. Its faults are Drop, which loses the
// event, and Delay, which sends it late, after others.
const ContainerEvent = "ContainerEvent"

// Fault applies to matching calls. An empty condition matches everything.
type Fault struct {
	// Call is the method name, "CreateContainer", or ContainerEvent. If empty, it matches every call except ContainerEvent and
	// GetContainerEvents.
	Call string
	// Pod is a part of the pod's name, Container the metadata name of the container.
	Pod, Container string
	// Match decides on the target and the request (nil for streams and events). It runs under the runtime's lock and
	// must not call the runtime's methods.
	Match func(t Target, request any) bool

	// Nth is the first affected matching call, counted from 1; 0 means 1.
	Nth int
	// Times is the number of consecutive matching calls affected from there; 0 means 1, negative means all.
	Times int

	Kind Kind
	// Err is the error of kind Error; by default a status with code Unknown.
	Err error
	// Delay is the additional duration of the call by the runtime's clock, for every kind except CrashBefore.
	Delay time.Duration
}

// fault is an injected Fault with its count. Runtime.mu guards seen.
type fault struct {
	Fault
	seen     int
	released chan struct{}
}

// Inject adds a fault. If several match a call, the first injected one applies, and all count the call. cancel removes it and
// releases the calls that hang in it; it may be called more than once. Inject panics on an unknown call name or kind.
func (r *Runtime) Inject(f Fault) (cancel func()) {
	if err := f.validate(); err != nil {
		panic("sim: " + err.Error())
	}
	armed := &fault{Fault: f, released: make(chan struct{})}
	r.mu.Lock()
	r.faults = append(r.faults, armed)
	r.mu.Unlock()
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if slices.Contains(r.faults, armed) {
			r.faults = without(r.faults, armed)
			close(armed.released)
		}
	}
}

func (f Fault) validate() error {
	kinds := []Kind{Error, Delay, Hang, Drop, Swallow, Wrong, CrashBefore, CrashAfter}
	switch {
	case f.Call == ContainerEvent:
		kinds = []Kind{Drop, Delay}
	case f.Call == eventsCall:
		kinds = []Kind{Error, Delay, Hang, CrashBefore}
	case f.Call != "" && !isMethod(f.Call):
		return fmt.Errorf("no CRI call is named %q", f.Call)
	}
	if !slices.Contains(kinds, f.Kind) {
		return fmt.Errorf("fault kind %q does not exist for call %q", f.Kind, f.Call)
	}
	return nil
}

func isMethod(name string) bool {
	for _, service := range []grpc.ServiceDesc{runtimeapi.RuntimeService_ServiceDesc, runtimeapi.ImageService_ServiceDesc} {
		if slices.ContainsFunc(service.Methods, func(m grpc.MethodDesc) bool { return m.MethodName == name }) ||
			slices.ContainsFunc(service.Streams, func(s grpc.StreamDesc) bool { return s.StreamName == name }) {
			return true
		}
	}
	return false
}

// faultLocked counts the call with every matching fault and returns the one that applies, or nil.
func (r *Runtime) faultLocked(t Target, req any) *fault {
	var strikes *fault
	for _, f := range r.faults {
		if !f.matches(t, req) {
			continue
		}
		f.seen++
		first := max(f.Nth, 1)
		due := f.seen >= first && (f.Times < 0 || f.seen < first+max(f.Times, 1))
		if due && strikes == nil {
			strikes = f
		}
	}
	return strikes
}

func (f *fault) matches(t Target, req any) bool {
	if f.Call == "" && (t.Call == ContainerEvent || t.Call == eventsCall) {
		return false
	}
	return (f.Call == "" || f.Call == t.Call) &&
		strings.Contains(t.PodName, f.Pod) &&
		(f.Container == "" || f.Container == t.Container) &&
		(f.Match == nil || f.Match(t, req))
}

func (f *fault) err() error {
	if f.Err != nil {
		return f.Err
	}
	return status.Error(codes.Unknown, "injected fault")
}

// spoil turns an answer into a wrong one.
func spoil(answer proto.Message) {
	switch a := answer.(type) {
	case *runtimeapi.ContainerStatusResponse:
		a.Status.State = runtimeapi.ContainerState_CONTAINER_UNKNOWN
	case *runtimeapi.ListContainersResponse:
		for _, c := range a.Containers {
			c.State = runtimeapi.ContainerState_CONTAINER_UNKNOWN
		}
	case *runtimeapi.ListPodSandboxResponse:
		for _, s := range a.Items {
			s.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
		}
	default:
		proto.Reset(answer)
	}
}

// strikeBefore applies the faults that come before the work. done is set if the call ends here.
func (r *Runtime) strikeBefore(ctx context.Context, c *call) (done bool, err error) {
	if c.fault == nil {
		return false, nil
	}
	switch c.fault.Kind {
	case Error:
		if err := r.sleep(ctx, c.fault.Delay); err != nil {
			return true, err
		}
		return true, c.fault.err()
	case Hang:
		select {
		case <-c.fault.released:
			return false, nil
		case <-ctx.Done():
			return true, status.FromContextError(ctx.Err()).Err()
		}
	case CrashBefore:
		r.crash()
		<-ctx.Done()
		return true, status.FromContextError(ctx.Err()).Err()
	default: // the fault applies after the work, or slows it
	}
	return false, nil
}

// strikeAfter applies the faults that come after the work.
func (r *Runtime) strikeAfter(ctx context.Context, c *call, resp any, err error) (any, error) {
	if c.fault == nil {
		return resp, err
	}
	switch c.fault.Kind {
	case Drop:
		return nil, status.Error(codes.Unavailable, "error reading from server: EOF")
	case Swallow:
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	case CrashAfter:
		r.crash()
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	case Wrong:
		if m, ok := resp.(proto.Message); ok && err == nil {
			m = proto.Clone(m)
			spoil(m)
			return m, nil
		}
	default: // the fault was applied before the work
	}
	return resp, err
}
