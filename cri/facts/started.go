package facts

import (
	"sync"

	"github.com/playlet-dev/playlet/messages"
)

// StartFacts holds the facts that starts have read of their sandboxes and containers, until a reading of the pod takes them: it
// does not ask the runtime again for an object that its lists show in the same state. A lost fact costs one call. A process has
// one; nil holds nothing. Safe for concurrent use.
type StartFacts struct {
	mu   sync.Mutex
	pods map[string]messages.PodFacts // by UID
}

// AddSandbox adds the fact of a sandbox that a pod with this UID has just got.
func (s *StartFacts) AddSandbox(uid string, f messages.SandboxFact) {
	s.change(uid, func(p *messages.PodFacts) { p.Sandboxes = append(p.Sandboxes, f) })
}

// AddContainer adds the fact of a container that was just started.
func (s *StartFacts) AddContainer(uid string, f messages.ContainerFact) {
	s.change(uid, func(p *messages.PodFacts) { p.Containers = append(p.Containers, f) })
}

func (s *StartFacts) change(uid string, add func(*messages.PodFacts)) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pods == nil {
		s.pods = map[string]messages.PodFacts{}
	}
	p := s.pods[uid]
	add(&p)
	s.pods[uid] = p
}

// Take removes and returns the facts of one pod. Only its sandboxes and containers are set.
func (s *StartFacts) Take(uid string) messages.PodFacts {
	if s == nil {
		return messages.PodFacts{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pods[uid]
	delete(s.pods, uid)
	return p
}

// Keep drops the facts of the pods that keep does not name. It is called while the table is locked and must not use it.
func (s *StartFacts) Keep(keep func(uid string) bool) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid := range s.pods {
		if !keep(uid) {
			delete(s.pods, uid)
		}
	}
}
