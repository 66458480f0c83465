package runtime

import (
	"fmt"
	"testing"

	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/supervisortest"
)

// BenchmarkQuietAudit measures one audit of a thousand unchanged pods, including the fake's lists.
func BenchmarkQuietAudit(b *testing.B) {
	f := newFake()
	for i := range 1000 {
		f.pod(fmt.Sprintf("uid-%d", i), "a0r", "b0r")
	}
	k := supervisortest.New(b, messages.Runtime, New(Options{CRI: f, Operations: cri.NewOperations()})("runtime"))
	k.RunWork()
	k.Take()
	f.took()
	b.ReportAllocs()
	for b.Loop() {
		k.Send(messages.Runtime, auditDue{})
		k.RunWork()
	}
	if calls := f.took(); len(calls) != b.N*len("sandboxes containers ")-1 {
		b.Errorf("more than two calls an audit")
	}
}
