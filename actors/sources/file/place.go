package file

import (
	"time"

	"github.com/playlet-dev/playlet/messages"
)

// place is what is known of the path itself. Its zero value is one that can be read.
type place struct {
	problem *messages.ManifestProblem // in force
	trial   *doubt
}

// doubt is that the path seems to be missing, or cannot be read, and that this is not believed yet.
type doubt struct {
	missing bool
	since   time.Time
}

func (d *doubt) due() time.Time {
	if d.missing {
		return d.since.Add(waitPlace)
	}
	return d.since.Add(waitBroken)
}

// readable says whether nothing is known to be wrong with the path.
func (p *place) readable() bool { return p.problem == nil && p.trial == nil }

// due says whether it is time to look again.
func (p *place) due(now time.Time) bool { return p.trial != nil && !now.Before(p.trial.due()) }

// doubted notes that the path seems to be missing, or cannot be read, and says whether that is not believed yet.
func (p *place) doubted(missing bool, now time.Time) bool {
	if p.trial == nil || p.trial.missing != missing {
		p.trial = &doubt{missing: missing, since: now}
	}
	return now.Before(p.trial.due())
}
