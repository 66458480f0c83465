package agent

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/playlet-dev/playlet/cmd/playlet/client"
	"github.com/playlet-dev/playlet/cri/sim"
)

// TestEventsOfAStandaloneNode lists events without an API server, also after a restart of the agent and for a removed pod.
func TestEventsOfAStandaloneNode(t *testing.T) {
	r := newRig(t, sim.Options{Script: sim.Script{ByContainer: map[string]sim.Sequence{"web-node/d": {sim.ExitAfter(0, 137)}}}})
	r.start(nil)
	r.write("web.yaml", manifest("web", "Always", nil, []string{"c hello", "d hello"}))
	r.untilPrinted([]string{"events", "web"}, "NAMESPACE", "Normal", "Started", "pod/web-node (c)", "Container started", "BackOff")
	r.untilPrinted([]string{"describe", "web"}, "Name:", "web-node", "sources/file", "    State:", "runs since", "Last state:",
		"exit code 137 (Error): killed by SIGKILL", "Conditions:", "  Ready: ", "Events:\n  LAST SEEN", "pod/web-node (d)")
	out, _, _ := r.playlet("describe", "web")
	t.Log("\n" + out)
	out, _, _ = r.playlet("events")
	t.Log("\n" + out)
	if out, notes, code := r.playlet("events", "other"); code != 1 || out != "" ||
		notes != "playlet: there is no pod \"other\" in any namespace (playlet pods lists them); no event of it is recorded either\n" {
		t.Errorf("of no pod: %d %q %q", code, out, notes)
	}
	r.stop()
	r.remove("web.yaml")
	r.start(nil)
	r.untilPrinted([]string{"pods"}, "no pods")
	r.untilPrinted([]string{"events", "default/web-node", "-o", "custom-columns=R:.reason"}, "Pulled\n", "Started\n", "Killing\n")

	watched := &logBuffer{}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	root := &cobra.Command{Use: "playlet"}
	root.AddCommand(client.Commands()...)
	root.SetArgs([]string{"events", "-w", "late", "--no-headers", "--admin-socket=" + filepath.Join(r.dir, "admin.sock")})
	root.SetOut(watched)
	go func() { ended <- root.ExecuteContext(ctx) }()
	r.write("late.yaml", manifest("late", "Always", nil, []string{"c hello"}))
	for deadline := time.Now().Add(waitLimit); !strings.Contains(watched.String(), "Container started"); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it prints\n%s", watched)
		}
	}
	stop()
	if err := <-ended; err != nil || strings.Contains(watched.String(), "web") {
		t.Errorf("%v\n%s", err, watched)
	}
	t.Log("\n" + watched.String())
}
