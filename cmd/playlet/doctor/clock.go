package doctor

import (
	"context"
	"time"
)

const (
	// watched is how long the clocks are compared.
	watched = 500 * time.Millisecond
	// jump is by how much they may differ then: slewing changes half a millisecond in a second (adjtime(3)).
	jump = 100 * time.Millisecond
)

// checkClock says whether the time is right, and stays so.
func checkClock(ctx context.Context, m *Machine) []Finding {
	const sync = "let a time daemon set it (systemctl enable --now systemd-timesyncd, or chrony)"
	wall, monotonic := m.System.Clocks()
	// A day's grace: the clock of who built it may be a little ahead.
	if !m.Built.IsZero() && wall.Before(m.Built.Add(-24*time.Hour)) {
		return fail(sync+"; certificates are not valid yet at that time", "it is %s here, and this program was built at %s",
			wall.UTC().Format(time.RFC3339), m.Built.UTC().Format(time.RFC3339))
	}
	select {
	case <-time.After(watched):
	case <-ctx.Done():
		return skip("%v", context.Cause(ctx))
	}
	wallNow, monotonicNow := m.System.Clocks()
	if off := wallNow.Sub(wall) - (monotonicNow - monotonic); off > jump || off < -jump {
		return warn("see that only one daemon sets the clock, and slews it rather than setting it",
			"the clock was set by %s while it was looked at", off.Round(time.Millisecond))
	}
	synchronised, err := m.System.Synchronised()
	switch {
	case err != nil:
		return skip("whether the clock is synchronised cannot be read: %v", err)
	case !synchronised:
		return warn(sync, "it is not synchronised, as the kernel knows (adjtimex)")
	}
	return ok("synchronised, %s", wallNow.UTC().Format(time.RFC3339))
}
