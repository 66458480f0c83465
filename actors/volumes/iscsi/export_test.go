package iscsi

import (
	"testing"
	"time"
)

// SetDiskTimeout sets the wait for a disk until the test ends.
func SetDiskTimeout(t *testing.T, d time.Duration) {
	was := diskTimeout
	diskTimeout = d
	t.Cleanup(func() { diskTimeout = was })
}
