package status

import (
	"fmt"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/messages"
)

// More pods than writers change their readiness all the time. Another pod's status is still written.
func TestMachine_ReadinessLeavesRoom(t *testing.T) {
	b := aMachine()
	m := newModel()
	for i := range 3 * writers {
		m.put(object(fmt.Sprint("flaps-", i), fmt.Sprint("flaps-", i)))
	}
	quiet := object("quiet", "quiet")
	quiet.Status = *statusOf(true, 0)
	m.put(quiet)
	now := noon
	for range 20 {
		b.observe(messages.APIPodsObserved{Pods: m.list(), At: now})
		for i := range 3 * writers {
			name := fmt.Sprint("flaps-", i)
			b.setDesired(desired(m.pods["default/"+name], statusOf(!ready(&m.pods["default/"+name].Status), 0)))
		}
		b.setDesired(desired(quiet, statusOf(true, 1)))
		jobs, _ := b.take(now)
		for _, j := range jobs {
			if j.name == "quiet" {
				return
			}
			b.handleResult(now, m.answered(t, j))
		}
		now = now.Add(time.Second)
	}
	t.Error("the status of a pod was not written in 20 rounds, while others changed their readiness")
}
