package cri

import (
	"maps"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// endsKept is how long the client remembers that it has ended an object. The runtime's event about it comes within that time,
// unless the runtime is overloaded.
const endsKept = time.Minute

// clientEnds are the containers and sandboxes that the client's own calls stop or remove, by ID. The zero value has none.
// Safe for concurrent use.
type clientEnds struct {
	mu   sync.Mutex
	byID map[string]*clientEnd
}

type clientEnd struct {
	calls   int       // in progress
	ended   time.Time // when the last successful call ended; zero: none did
	removed bool      // the object's last event has come
}

// Ends reports whether a call of this client stops or removes the container or sandbox with this ID, or has done so within the
// last minute. An event about its end is no news to the caller then. With removed, the event is the last one of the object,
// which is forgotten.
func (c *Client) Ends(id string, removed bool) bool {
	e := &c.ends
	e.mu.Lock()
	defer e.mu.Unlock()
	is := e.byID[id]
	if is == nil {
		return false
	}
	if is.removed = removed; removed && is.calls == 0 {
		delete(e.byID, id)
	}
	return is.calls > 0 || time.Since(is.ended) < endsKept
}

// begin records a call that ends an object, and done its result. After a failed call, the object's end is news.
func (e *clientEnds) begin(id string) (done func(error)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.byID == nil {
		e.byID = map[string]*clientEnd{}
	}
	now := time.Now()
	maps.DeleteFunc(e.byID, func(_ string, is *clientEnd) bool { return is.calls == 0 && now.Sub(is.ended) >= endsKept })
	is := e.byID[id]
	if is == nil {
		is = &clientEnd{}
		e.byID[id] = is
	}
	is.calls++
	return func(err error) {
		e.mu.Lock()
		defer e.mu.Unlock()
		if err == nil {
			is.ended = time.Now()
		}
		if is.calls--; is.calls == 0 && (is.removed || is.ended.IsZero()) {
			delete(e.byID, id)
		}
	}
}

// endedBy returns the ID of the object that a call stops or removes; empty: the call ends none.
func endedBy(req any) string {
	switch r := req.(type) {
	case *runtimeapi.StopContainerRequest:
		return r.ContainerId
	case *runtimeapi.RemoveContainerRequest:
		return r.ContainerId
	case *runtimeapi.StopPodSandboxRequest:
		return r.PodSandboxId
	case *runtimeapi.RemovePodSandboxRequest:
		return r.PodSandboxId
	}
	return ""
}
