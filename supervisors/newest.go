package supervisors

import "github.com/playlet-dev/playlet/messages"

// newest are the numbers of the messages that an actor was handed last of each topic. Messages from one actor to another arrive in
// the order of their sending, unless an interceptor delays or doubles one: only then is this kept, and what has been overtaken is
// lost. So no receiver has to ask whether the state that it is told is an old one.
type newest map[topic]uint64

type topic struct {
	from messages.Address
	of   string
	pod  string // UID; empty in what is about all pods
}

// every stands for whatever pod was told of last.
const every = "*"

// maxTopics bounds the numbers that are kept; a message is seldom late by so many.
const maxTopics = 10_000

// take notes a message that is about to be handled, and says whether it may be.
func (n *newest) take(env *envelope) bool {
	t := topic{from: env.from, of: messages.Topic(env.msg), pod: messages.PodOf(env.msg)}
	if t.of == "" || env.kind != OfMessage {
		return true
	}
	all, last := t, t
	all.pod, last.pod = "", every
	if env.id < (*n)[t] || env.id < (*n)[all] || t == all && env.id < (*n)[last] {
		return false
	}
	if *n == nil || len(*n) >= maxTopics {
		*n = newest{}
	}
	(*n)[t], (*n)[last] = env.id, max(env.id, (*n)[last])
	return true
}
