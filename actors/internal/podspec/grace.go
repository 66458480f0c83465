package podspec

import "time"

// longestGrace is a hundred years: the API takes any number of seconds, of which a time.Duration holds 292 years.
const longestGrace = 100 * 365 * 24 * 60 * 60

// Grace is a grace period that is given in seconds. A longer one than a hundred years is cut to that, so that the deadlines
// that are made of it do not overflow.
func Grace(seconds int64) time.Duration {
	return time.Duration(min(seconds, longestGrace)) * time.Second
}
