package sim

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// eventsKeptFor is how long containerd keeps events for a future subscriber when there is none.
	eventsKeptFor = 5 * time.Minute
	// eventsKept limits the number of kept events; containerd has no limit.
	eventsKept = 4096
)

// eventHub sends events to every open stream. Without a stream it keeps them for the first one to open, as containerd does.
// Runtime.mu guards it.
type eventHub struct {
	streams map[*eventStream]struct{}
	kept    []*runtimeapi.ContainerEventResponse
}

// eventStream is one GetContainerEvents call. Its queue has no limit: a slow reader delays no other.
type eventStream struct {
	queue []*runtimeapi.ContainerEventResponse
	wake  chan struct{} // capacity 1
}

// forget drops the kept events when the runtime dies.
func (h *eventHub) forget() { h.kept = nil }

func (h *eventHub) publish(e *runtimeapi.ContainerEventResponse) {
	if len(h.streams) > 0 {
		for s := range h.streams {
			s.push(e)
		}
		return
	}
	h.kept = append(h.kept, e)
	h.expire(e.CreatedAt)
}

// expire drops kept events that are too old at now, in Unix nanoseconds, or too many.
func (h *eventHub) expire(now int64) {
	drop := max(0, len(h.kept)-eventsKept)
	for drop < len(h.kept) && now-h.kept[drop].CreatedAt > int64(eventsKeptFor) {
		drop++
	}
	h.kept = h.kept[drop:]
}

func (s *eventStream) push(events ...*runtimeapi.ContainerEventResponse) {
	s.queue = append(s.queue, events...)
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// emitLocked sends an event about the container or sandbox id in sb. A dead runtime sends none, and neither does an old one.
func (r *Runtime) emitLocked(t Target, sb *sandbox, kind runtimeapi.ContainerEventType) {
	if r.opts.Old || !r.serving {
		return
	}
	now := r.now()
	event := &runtimeapi.ContainerEventResponse{
		ContainerId:        t.ID,
		ContainerEventType: kind,
		CreatedAt:          now.UnixNano(),
		PodSandboxStatus:   r.sandboxStatusLocked(sb),
		ContainersStatuses: r.statusesLocked(sb),
	}
	t.Call = ContainerEvent
	f := r.faultLocked(t, nil)
	switch {
	case f == nil:
		r.events.publish(event)
	case f.Kind == Delay:
		r.afterLocked(f.Delay, func() {
			if r.serving {
				r.events.publish(event)
			}
		})
	}
}

// GetContainerEvents streams the kept events and then every new one.
func (s *runtimeService) GetContainerEvents(_ *runtimeapi.GetEventsRequest,
	stream grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse]) error {
	r := s.r
	if r.opts.Old {
		return status.Error(codes.Unimplemented, "method GetContainerEvents not implemented")
	}
	own := &eventStream{wake: make(chan struct{}, 1)}
	r.subscribe(own)
	defer r.unsubscribe(own)
	for {
		select {
		case <-own.wake:
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		}
		r.mu.Lock()
		events := own.queue
		own.queue = nil
		r.mu.Unlock()
		for _, e := range events {
			if err := stream.Send(e); err != nil {
				return err
			}
		}
	}
}

func (r *Runtime) subscribe(s *eventStream) {
	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.events.streams == nil {
		r.events.streams = map[*eventStream]struct{}{}
	}
	r.events.expire(now.UnixNano())
	if len(r.events.kept) > 0 {
		s.push(r.events.kept...)
		r.events.kept = nil
	}
	r.events.streams[s] = struct{}{}
	r.changedLocked()
}

func (r *Runtime) unsubscribe(s *eventStream) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.events.streams, s)
	r.changedLocked()
}
