package agent

import (
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/cri/sim"
)

// A node that stands alone runs a static pod that asks for more than the machine has; the log warns of it once, and so does an
// event.
func TestStaticPod_TooLargeIsAWarning(t *testing.T) {
	r := newRig(t, sim.Options{})
	r.write("large.yaml", strings.Replace(manifest("large", "Always", nil, []string{"c hello"}), "hello\n",
		"hello\n    resources: {requests: {cpu: 4000}}\n", 1))
	r.write("small.yaml", manifest("small", "Always", nil, []string{"c hello"}))
	r.start(nil)
	r.untilPrinted([]string{"events", "large"}, "ExceedsNode", "The pod asks for more than this node has for pods (cpu 4k of ")
	r.untilPrinted([]string{"pods", "large"}, "Running")
	r.stop()
	r.start(nil)
	r.untilPrinted([]string{"pods", "large"}, "Running")
	if n := strings.Count(r.log.String(), "a pod requests more than this machine's allocatable resources"); n != 1 {
		t.Errorf("the log warns %d times", n)
	}
	if out, _, _ := r.playlet("events", "small"); strings.Contains(out, "ExceedsNode") {
		t.Errorf("of another pod:\n%s", out)
	}
}
