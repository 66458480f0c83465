package cri

import (
	"context"
	"path"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// intercept waits for a slot, makes the call with its deadline, validates the answer and wraps a failure in a typed error. The
// deadline starts when the slot is taken, so that queueing does not consume it; waiting is bounded by ctx alone.
func (c *Client) intercept(
	ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	name, object := path.Base(method), objectOf(req)
	asked := time.Now()
	if ctx.Value(slotlessKey{}) == nil {
		class, queues := c.queuesOf(ctx, name)
		for _, queue := range queues {
			release, err := queue.take(ctx, priorityIn(ctx, class), hasGrace(req))
			if err != nil {
				return &CallError{Call: name, Object: object, NotSent: true, Err: err}
			}
			defer release()
		}
	}
	if limit := c.limit(req); limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	// gRPC invents a status when the connection or the deadline fails. Only a status that came over the wire has headers or
	// trailers.
	var header, trailer metadata.MD
	began := time.Now()
	done := func(error) {}
	if id := endedBy(req); id != "" {
		done = c.ends.begin(id)
	}
	err := invoke(ctx, method, req, reply, conn, append(opts, grpc.Header(&header), grpc.Trailer(&trailer))...)
	done(err)
	if c.opts.Observe != nil {
		c.opts.Observe(ctx, Observation{name, object, req, asked, began, time.Since(began), err})
	}
	if err != nil {
		return newCallError(name, object, len(header)+len(trailer) > 0 && !ended(ctx), err)
	}
	if odd := malformed(reply); odd != "" {
		return newCallError(name, object, true, status.Error(codes.Internal, "the runtime replied with "+odd))
	}
	return nil
}

// objectOf returns a readable name of the object of a request.
func objectOf(req any) string {
	switch r := req.(type) {
	case *runtimeapi.RunPodSandboxRequest:
		return sandboxName(r.Config)
	case *runtimeapi.CreateContainerRequest:
		return sandboxName(r.SandboxConfig) + "/" + r.Config.GetMetadata().GetName()
	case *runtimeapi.UpdateRuntimeConfigRequest:
		return r.GetRuntimeConfig().GetNetworkConfig().GetPodCidr()
	case interface{ GetContainerId() string }:
		return shortID(r.GetContainerId())
	case interface{ GetPodSandboxId() string }:
		return shortID(r.GetPodSandboxId())
	case interface{ GetImage() *runtimeapi.ImageSpec }:
		return r.GetImage().GetImage()
	}
	return ""
}

func sandboxName(config *runtimeapi.PodSandboxConfig) string {
	m := config.GetMetadata()
	return m.GetNamespace() + "/" + m.GetName()
}

// shortID returns the first 13 characters of an ID, as crictl prints it.
func shortID(id string) string { return id[:min(len(id), 13)] }

// limit returns the maximum duration of a call, or 0 for none.
func (c *Client) limit(req any) time.Duration {
	switch r := req.(type) {
	case *runtimeapi.PullImageRequest:
		return 0
	case *runtimeapi.RunPodSandboxRequest: // as with the kubelet
		return 2 * c.opts.RequestTimeout
	case interface{ GetTimeout() int64 }: // the runtime itself waits for so many seconds: a grace period, a command's run
		return c.opts.RequestTimeout + time.Duration(r.GetTimeout())*time.Second
	}
	return c.opts.RequestTimeout
}

// malformed describes how an answer violates the CRI. It returns "" for a valid one.
func malformed(reply any) string {
	var odd bool
	var what string
	switch r := reply.(type) {
	case *runtimeapi.VersionResponse:
		odd, what = r.RuntimeName == "" || r.RuntimeApiVersion == "", "no name or no API version"
	case *runtimeapi.StatusResponse:
		// The CRI requires two conditions; the kubelet treats a runtime with fewer as broken.
		odd, what = len(r.GetStatus().GetConditions()) < 2, "a status without its two conditions"
	case *runtimeapi.PodSandboxStatusResponse:
		odd, what = r.GetStatus().GetId() == "" || r.Status.Metadata == nil, "a status without ID or metadata"
	case *runtimeapi.CreateContainerResponse:
		odd, what = r.ContainerId == "", "a container without an ID"
	case *runtimeapi.ContainerStatusResponse:
		odd, what = r.GetStatus().GetId() == "" || r.Status.Metadata == nil, "a status without ID or metadata"
	case *runtimeapi.ImageStatusResponse: // as the kubelet counts it
		odd, what = r.Image != nil && (r.Image.Id == "" || r.Image.Size == 0), "an image without ID or size"
	case *runtimeapi.PullImageResponse:
		odd, what = r.ImageRef == "", "an image without a reference"
	case interface{ GetUrl() string }:
		odd, what = r.GetUrl() == "", "no URL"
	}
	if !odd {
		return ""
	}
	return what
}

// ended reports whether the call's time is up. gRPC sends the deadline along, so the runtime may be first to report that it has
// passed; that is no answer. ended reads the clock because the context's timer may be late.
func ended(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline)
}
