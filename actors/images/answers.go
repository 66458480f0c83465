package images

import (
	"time"

	"github.com/playlet-dev/playlet/messages"
)

// answersKept is longer than any pod waits before it asks again.
const answersKept = 10 * time.Minute

// answers remembers by pod and by container and volume what was answered last. A pod that missed an answer asks again; where the
// policy is Always, that is not worth another pull.
type answers map[string]map[[2]string]answered

type answered struct {
	attempt uint32
	name    string
	pulled  bool
	at      time.Time
}

// pulled tells whether this very question was answered with a pull.
func (a answers) pulled(k messages.ImageKey, name string) bool {
	was, ok := a[k.UID][[2]string{k.Container, k.Volume}]
	return ok && was.attempt == k.Attempt && was.name == name && was.pulled
}

// gave tells whether this very question was answered.
func (a answers) gave(k messages.ImageKey, name string) bool {
	was, ok := a[k.UID][[2]string{k.Container, k.Volume}]
	return ok && was.attempt == k.Attempt && was.name == name
}

// remember notes an answer.
func (a answers) remember(now time.Time, m messages.ImagePulled, name string) {
	of := a[m.Key.UID]
	if of == nil {
		of = map[[2]string]answered{}
		a[m.Key.UID] = of
	}
	of[[2]string{m.Key.Container, m.Key.Volume}] = answered{m.Key.Attempt, name, m.Pulled, now}
}

// prune lets go of what nobody asks again about.
func (a answers) prune(now time.Time) {
	for uid, of := range a {
		for c, was := range of {
			if now.Sub(was.at) > answersKept {
				delete(of, c)
			}
		}
		if len(of) == 0 {
			delete(a, uid)
		}
	}
}

func (a answers) forget(uid string) { delete(a, uid) }
