package podspec

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// longestGrace is a hundred years: the API takes any number of seconds, of which a time.Duration holds 292 years.
const longestGrace = 100 * 365 * 24 * 60 * 60

// Grace is a grace period that is given in seconds. A longer one than a hundred years is cut to that, so that the deadlines
// that are made of it do not overflow.
func Grace(seconds int64) time.Duration {
	return time.Duration(min(seconds, longestGrace)) * time.Second
}

// GracePeriod is what containers have to end: the last of these that is set, in seconds, and 1 s at least; the API's default
// where none is.
func GracePeriod(of ...*int64) time.Duration {
	seconds := int64(v1.DefaultTerminationGracePeriodSeconds)
	for _, s := range of {
		if s != nil {
			seconds = *s
		}
	}
	return Grace(max(seconds, 1))
}
