package volumes

import (
	"context"
	"time"

	"github.com/playlet-dev/playlet/supervisors"
)

// driverReads schedules reads of the limit of volumes on this node, for drivers with a changing limit (KEP-4876). A changed limit
// is a change of drivers, which is sent to registration.
type driverReads struct {
	readAt  map[string]time.Time // when each limit was read last, by driver
	reading map[string]bool      // drivers that are being asked
	failed  map[string]string    // the last error, by driver
	timer   supervisors.Timer
}

type (
	limitDue  struct{}
	limitRead struct {
		driver string
		err    error
	}
)

// limitTimeout is longer than a driver's time to answer.
const limitTimeout = time.Minute

// due returns the drivers to read now, and the time of the next read (zero: never). periods are the intervals by driver. The
// first interval begins when the driver is first seen, since a driver is asked when it registers.
func (l *driverReads) due(periods map[string]time.Duration, now time.Time) (drivers []string, next time.Time) {
	for name := range l.readAt {
		if periods[name] == 0 {
			delete(l.readAt, name)
			delete(l.failed, name)
		}
	}
	for name, period := range periods {
		at, seen := l.readAt[name]
		if !seen {
			if l.readAt == nil {
				*l = driverReads{readAt: map[string]time.Time{}, reading: map[string]bool{}, failed: map[string]string{}}
			}
			l.readAt[name], at = now, now
		}
		at = at.Add(period)
		switch {
		case l.reading[name]:
		case !at.After(now):
			drivers = append(drivers, name)
		case next.IsZero() || at.Before(next):
			next = at
		}
	}
	return drivers, next
}

// readLimits reads the limits that are due. Each driver is asked separately: one that hangs delays no other.
func (a *actor) readLimits(ctx supervisors.Context) {
	l, all := &a.reads, a.storage.Drivers
	drivers, next := l.due(a.storage.LimitPeriods(), ctx.Now())
	for _, name := range drivers {
		l.reading[name] = true
		ctx.Do(supervisors.Work{Name: "ReadVolumeLimit", Timeout: limitTimeout, Run: func(ctx context.Context) any {
			return limitRead{name, all.ReadLimit(ctx, name)}
		}})
	}
	supervisors.Cancel(l.timer)
	if l.timer = nil; !next.IsZero() {
		l.timer = ctx.After(next.Sub(ctx.Now()), limitDue{})
	}
}

func (a *actor) onLimitRead(ctx supervisors.Context, m limitRead) {
	l, text := &a.reads, ""
	if m.err != nil {
		text = m.err.Error()
	}
	if text != "" && text != l.failed[m.driver] {
		ctx.Log().Warn("a CSI driver's volume limit could not be read; the CSINode keeps the last one", "driver", m.driver,
			"error", text)
	}
	l.failed[m.driver] = text
	delete(l.reading, m.driver)
	l.readAt[m.driver] = ctx.Now()
	a.readLimits(ctx)
}
