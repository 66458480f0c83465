package agent

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cri/sim"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// stuck blocks one actor in its next message from outside, once it is armed.
type stuck struct {
	actor   messages.Address
	release chan struct{}
	mu      sync.Mutex
	armed   bool
}

func (s *stuck) arm() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed = true
}

func (s *stuck) Before(d supervisors.Delivery) supervisors.Verdict {
	s.mu.Lock()
	armed := s.armed && d.Actor == s.actor
	s.mu.Unlock()
	if armed {
		<-s.release
	}
	return supervisors.Verdict{}
}

func (s *stuck) After(supervisors.Delivery) supervisors.Verdict { return supervisors.Verdict{} }

// TestActorsCommandOfARunningAgent draws the tree and inspects an actor. A hanging actor is drawn, too, and reported as busy.
func TestActorsCommandOfARunningAgent(t *testing.T) {
	r := newRig(t, sim.Options{})
	s := &stuck{actor: messages.Volumes, release: make(chan struct{})}
	r.write("web.yaml", manifest("web", "Always", nil, []string{"one hello"}))
	r.start(s)
	r.untilPrinted([]string{"pods"}, "web-node   1/1     Running")
	r.untilPrinted([]string{"actors"}, "node ", "├─ images ", "├─ pods ", "│  └─ default/web-node ", "│     └─ one ", "│  ├─ file ")
	r.untilPrinted([]string{"actors", "inspect", "pods/web-node"}, "kind: pod\n", "pod: default/web-node\n", "children:\n- one\n",
		"state: running\n", "phase: running")
	uid := r.runtime.Snapshot().Sandbox("web-node").UID
	r.agent.system.Kill(messages.PodAddress(uid), "a test")
	r.untilPrinted([]string{"actors", "pods/" + uid, "-o", "wide"}, "pods/"+uid+" ", "killed: a test")
	s.arm()
	r.agent.system.Tell(messages.Volumes, messages.GetInspection{})
	r.agent.system.Tell(messages.Volumes, messages.GetInspection{})
	r.untilPrinted([]string{"actors", "volumes", "-o", "wide"}, "GetInspection of node")
	begun := time.Now()
	_, notes, code := r.playlet("actors", "inspect", "volumes")
	if took := time.Since(begun); code != 1 || took > 10*time.Second ||
		!strings.Contains(notes, `actor "volumes": no answer to GetInspection: it is busy with GetInspection of node since `) {
		t.Errorf("after %s: %d %s", took, code, notes)
	}
	out, _, _ := r.playlet("actors", "volumes", "-o", "json")
	var got api.Actors
	if err := json.Unmarshal([]byte(out), &got); err != nil || len(got.Actors) != 1 || got.Actors[0].Waiting < 1 {
		t.Errorf("%v %s", err, out)
	}
	close(s.release)
	r.untilPrinted([]string{"actors", "inspect", "volumes", "-o", "json"}, `"state": "running"`)
}
