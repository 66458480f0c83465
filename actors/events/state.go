package events

import (
	"fmt"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/playlet-dev/playlet/actors/internal/apiclient"
)

// State says why events cannot be written, for readers that must not wait for the actor. The zero value: they can. Safe for
// concurrent use.
type State struct{ p atomic.Pointer[string] }

// Problems are sentences that say what goes wrong: that events wait, or are refused as the node may not write them.
func (s *State) Problems() []string {
	if p := s.p.Load(); p != nil && *p != "" {
		return []string{*p}
	}
	return nil
}

func (s *State) store(text string) {
	if s != nil {
		s.p.Store(&text)
	}
}

// problem says what is wrong after a batch. One event that is refused, as for a namespace that ends, is no trouble; a node that
// may write none has all of them refused.
func problem(q *queue, last written) string {
	switch {
	case q.trouble != "":
		return fmt.Sprintf("events cannot be written, and wait (%d): %s", len(q.items), q.trouble)
	case last.done == 0 && apierrors.IsForbidden(last.refusal) &&
		!apierrors.HasStatusCause(last.refusal, v1.NamespaceTerminatingCause):
		return "events are refused, and dropped: " + apiclient.Explain(last.refusal, q.source.node)
	}
	return ""
}
