package sim

import (
	"context"
	"path"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Target describes the object of a call, as far as the request or the runtime's state identifies it. The pod's fields are empty
// for calls that concern no single pod.
type Target struct {
	Call         string // method name, "CreateContainer"
	PodUID       string
	PodName      string
	PodNamespace string
	Container    string // metadata name
	Attempt      uint32 // of the container, or of the sandbox for calls about a sandbox
	ID           string // of the container or sandbox; for a create, the new ID
	Image        string
}

// call is one call in progress.
type call struct {
	entry *Entry
	fault *fault
	delay time.Duration // the fault's
}

type callKey struct{}

func callFrom(ctx context.Context) *call { return ctx.Value(callKey{}).(*call) }

// target returns the object of the call. Only the call's own goroutine may use it.
func (c *call) target() Target { return c.entry.Target }

// pausesInside lists the calls that spend a delay in the middle of their work, where a cancellation leaves traces; all others
// spend it before they begin.
var pausesInside = map[string]bool{
	"RunPodSandbox": true, "CreateContainer": true, "StartContainer": true, "PullImage": true,
}

// pause waits for the delay of the call in ctx, or fails when ctx ends first.
func (r *Runtime) pause(ctx context.Context) error { return r.sleep(ctx, callFrom(ctx).delay) }

// interceptUnary applies journal and faults to every call.
func (r *Runtime) interceptUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any,
	error) {
	c := r.begin(path.Base(info.FullMethod), req)
	resp, err := r.carryOut(context.WithValue(ctx, callKey{}, c), c, req, handle)
	r.end(c, err)
	return resp, err
}

// interceptStream does the same for streams. Their faults apply before the stream begins.
func (r *Runtime) interceptStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo,
	handle grpc.StreamHandler) error {
	c := r.begin(path.Base(info.FullMethod), nil)
	_, err := r.carryOut(stream.Context(), c, nil, func(context.Context, any) (any, error) {
		return nil, handle(srv, stream)
	})
	r.end(c, err)
	return err
}

// carryOut executes a call under its fault.
func (r *Runtime) carryOut(ctx context.Context, c *call, req any, handle grpc.UnaryHandler) (any, error) {
	if done, err := r.strikeBefore(ctx, c); done {
		return nil, err
	}
	if !pausesInside[c.entry.Call] {
		if err := r.sleep(ctx, c.delay); err != nil {
			return nil, err
		}
	}
	resp, err := handle(ctx, req)
	if err == nil {
		r.noteID(c, resp)
	} else if _, isStatus := status.FromError(err); !isStatus {
		err = status.FromContextError(err).Err()
	}
	return r.strikeAfter(ctx, c, resp, err)
}

// begin records the call in the journal and finds its fault.
func (r *Runtime) begin(name string, req any) *call {
	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	target := r.targetLocked(name, req)
	r.seq++
	c := &call{
		entry: &Entry{Seq: r.seq, Time: now, Target: target},
		fault: r.faultLocked(target, req),
	}
	if c.fault != nil {
		c.entry.Fault, c.delay = c.fault.Kind, c.fault.Delay
	}
	r.journal = append(r.journal, c.entry)
	r.recordLocked(c.entry)
	return c
}

// end closes the journal entry.
func (r *Runtime) end(c *call, err error) {
	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seq++
	c.entry.EndSeq, c.entry.EndTime = r.seq, now
	if err != nil {
		c.entry.Err = err.Error()
		if s, ok := status.FromError(err); ok {
			c.entry.Err, c.entry.Code = s.Message(), s.Code()
		}
	}
	r.recordLocked(c.entry)
}

// noteID completes the journal entry of a call that created an object.
func (r *Runtime) noteID(c *call, resp any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch resp := resp.(type) {
	case *runtimeapi.RunPodSandboxResponse:
		c.entry.ID = resp.GetPodSandboxId()
	case *runtimeapi.CreateContainerResponse:
		c.entry.ID = resp.GetContainerId()
	}
}

// targetLocked determines the object of a request.
func (r *Runtime) targetLocked(name string, req any) Target {
	t := Target{}
	switch req := req.(type) {
	case *runtimeapi.RunPodSandboxRequest:
		t = podTarget(req.GetConfig().GetMetadata())
	case *runtimeapi.CreateContainerRequest:
		t = containerTarget(req)
	case *runtimeapi.PullImageRequest:
		t = podTarget(req.GetSandboxConfig().GetMetadata())
	case interface{ GetContainerId() string }:
		t = r.knownLocked(req.GetContainerId())
	case interface{ GetPodSandboxId() string }:
		t = r.knownLocked(req.GetPodSandboxId())
	}
	if req, ok := req.(interface{ GetImage() *runtimeapi.ImageSpec }); ok {
		t.Image = req.GetImage().GetImage()
	}
	t.Call = name
	return t
}

func (r *Runtime) knownLocked(id string) Target {
	t := r.store.targets[id]
	t.ID = id
	return t
}

func podTarget(m *runtimeapi.PodSandboxMetadata) Target {
	return Target{PodUID: m.GetUid(), PodName: m.GetName(), PodNamespace: m.GetNamespace(), Attempt: m.GetAttempt()}
}

func containerTarget(req *runtimeapi.CreateContainerRequest) Target {
	t := podTarget(req.GetSandboxConfig().GetMetadata())
	t.Container = req.GetConfig().GetMetadata().GetName()
	t.Attempt = req.GetConfig().GetMetadata().GetAttempt()
	t.Image = req.GetConfig().GetImage().GetImage()
	return t
}

// errUnknown returns an error with the code Unknown and the cause in its text. containerd uses a proper code only for NotFound
// and a few others, and so does the simulation.

func errUnknown(format string, args ...any) error {
	return status.Errorf(codes.Unknown, format, args...)
}

func errNotFound(format string, args ...any) error {
	return status.Errorf(codes.NotFound, format+": not found", args...)
}

func errNoContainer(id string) error {
	return errNotFound("an error occurred when try to find container %q", id)
}

func errNoSandbox() error {
	return errNotFound("an error occurred when try to find sandbox")
}
