package supervisors

import (
	"cmp"
	"sync"

	"github.com/playlet-dev/playlet/messages"
)

// newest are the numbers of the messages that actors were handed last of each topic, in whatever life. Messages from one actor to
// another arrive in the order of their sending, unless an interceptor delays or doubles one: only with one is this kept, and what
// has been overtaken is lost. So no receiver has to ask whether the state that it is told is an old one.
type newest struct {
	mu   sync.Mutex
	last map[topic]uint64
}

type topic struct {
	from, to messages.Address
	of       string
	pod      string // UID; empty in what is about all pods
}

// every stands for whatever pod was told of last.
const every = "*"

// maxTopics bounds the numbers that are kept; a message is seldom late by so many.
const maxTopics = 50_000

// take notes a message that is about to be handled, and says whether it may be.
func (n *newest) take(to messages.Address, env *envelope) bool {
	t := topic{from: env.from, to: to, of: messages.Topic(env.msg), pod: messages.PodOf(env.msg)}
	if t.of == "" || env.kind != OfMessage {
		return true
	}
	all, last := t, t
	all.pod, last.pod = "", every
	n.mu.Lock()
	defer n.mu.Unlock()
	id := cmp.Or(env.original, env.id)
	if id < n.last[t] || id < n.last[all] || t == all && id < n.last[last] {
		return false
	}
	if n.last == nil || len(n.last) >= maxTopics {
		n.last = map[topic]uint64{}
	}
	n.last[t], n.last[last] = id, max(id, n.last[last])
	return true
}
