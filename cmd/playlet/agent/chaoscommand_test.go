package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cri/sim"
	"github.com/playlet-dev/playlet/supervisors"
)

// TestChaosByHand checks that each verb acts on a running agent, without effect on containers. Each act is in the log, in the
// flight recorder and in an Event of the node.
func TestChaosByHand(t *testing.T) {
	r := newClusterRig(t, sim.Options{}, "--enable-chaos")
	r.write("web.yaml", manifest("web", "Always", nil, []string{"one forever"}))
	r.start(nil)
	r.untilPrinted([]string{"pods"}, "web-node   1/1     Running")
	says := func(args []string, want ...string) {
		t.Helper()
		out, notes, code := r.playlet(append([]string{"chaos"}, args...)...)
		for _, w := range want {
			if code != 0 || !strings.Contains(out, w) {
				t.Errorf("chaos %v: %d\n%s%s\nwant %q", args, code, out, notes, w)
			}
		}
	}
	says([]string{"kill", "pod/web-node", "--seed=4", "--dry-run"}, "would kill pod/web-node --seed=4\nacts once within 60s, on 2 actors that match now:\n"+
		"  pods/default/web-node\n  pods/default/web-node/one\n")
	says([]string{"list"}, "ID   RULE   STATE   ACTED   ACTORS\n")
	says([]string{"kill", "pods/web-node"}, "rule 1: kill pods/web-node --seed=", "\nacted once:\n  pods/default/web-node\n")
	r.untilPrinted([]string{"actors", "pods/web-node"}, "chaos: rule 1, kill pods/web-node")
	says([]string{"pause", "volumes", "--duration=100ms"}, "acted once:\n  volumes\n")
	background := func(args ...string) {
		t.Helper()
		says(append(args, "--wait=false", "--count=-1", "--seed=9"), "rule ")
	}
	for _, verb := range []string{"drop", "duplicate", "delay", "reorder"} {
		background(verb, "runtime", "--message=gets*")
		r.agent.system.Tell("runtime", getsNothing{})
		r.untilPrinted([]string{"chaos", "list"}, verb+" runtime --message=gets* --seed=9 ", " ends in ", " 1 of any ")
		if _, _, code := r.playlet("chaos", "stop", "--all"); code != 0 {
			t.Error(code)
		}
	}
	var done api.ChaosRule
	out, notes, _ := r.playlet("chaos", "kill", "kind/container", "-o", "json")
	if err := json.Unmarshal([]byte(out), &done); err != nil || done.Acted != 1 || !done.Over || len(done.Targets) != 1 {
		t.Errorf("%v %s%s", err, out, notes)
	}
	for args, want := range map[string]string{
		"kill volumes --message=nothing --for=100ms": "rule 8 did nothing: no matching message arrived",
		"kill volumes --message=MountVolume":         `--message: no message matches "MountVolume"; did you mean MountVolumes?`,
		"kill volumes --message=mountvolumes":        `--message: no message matches "mountvolumes"; did you mean MountVolumes?`,
		"drop volumes --message=Xyzzyx* --count=-1":  `--message: no message matches "Xyzzyx*"`,
		"kill web":                  `no actor matches "web"; did you mean pods/web? (playlet actors lists them)`,
		"drop file":                 `no actor matches "file"; did you mean sources/file? (playlet actors lists them)`,
		"kill volums --dry-run":     `no actor matches "volums"; did you mean volumes? (playlet actors lists them)`,
		"pause x/y/z --wait=false":  `no actor matches "x/y/z" (playlet actors lists them)`,
		"kill pods/none*":           `no actor matches "pods/none*" (playlet actors lists them)`,
		"kill kind/pd":              `there is no kind of actor "pd"`,
		"drop x --probability=2":    "probability: 2 is not between 0 and 1",
		"drop x --count=0":          "would do nothing",
		"stop":                      "which rule?",
		"stop x":                    `"x" is not the number of a rule`,
		"stop 99":                   "there is no rule 99 in force",
		"delay x --duration=20m":    "duration: 20m0s is not between 0 and 10m0s",
		"kill volumes --duration=s": "unknown flag: --duration",
	} {
		if out, notes, code := r.playlet(append([]string{"chaos"}, strings.Fields(args)...)...); code != 1 || !strings.Contains(notes, want) {
			t.Errorf("%s: %d %s%s", args, code, out, notes)
		}
	}
	noted := false
	for _, e := range r.agent.system.Recorder().Last("") {
		noted = noted || e.Kind == supervisors.OfChaos && e.To == "volumes" && strings.HasPrefix(e.Digest, "hold: rule 2, pause volumes")
	}
	if !noted || !strings.Contains(r.log.String(), `msg="chaos rule applied" actor=volumes effect=hold`) {
		t.Error("the pause is not in the recorder and the log")
	}
	r.eventually("an Event of the node", func() bool {
		for text := range r.events("node") {
			if strings.HasPrefix(text, "Warning Chaos : playlet chaos injected 1 fault on purpose (rule 1: kill pods/web-node --seed=") {
				return true
			}
		}
		return false
	})
	r.await("the container as it was", func(s sim.Snapshot) bool {
		return s.Running() == 1 && s.Container("web-node", "one").Attempt == 0
	})
	if n := len(r.runtime.Calls("StopContainer")); n != 0 {
		t.Errorf("%d containers were stopped", n)
	}
	background("pause", "**", "--duration=10m") // an agent that is paused all over ends in time all the same
	began := time.Now()
	r.stop()
	if took := time.Since(began); took > drainTime {
		t.Errorf("it took %s to stop", took)
	}
	checkViolations(t, r.rig)
}

type getsNothing struct{}

// The shipped experiments pass on a healthy agent; the long one runs dry. The test does not run beside others of this package:
// an experiment checks in real time, for example that the lease is renewed before it ends.
func TestShippedExperimentsPass(t *testing.T) {
	for _, name := range []string{"kills", "messages", "staging"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newClusterRig(t, sim.Options{}, "--enable-chaos")
			for i := range 5 {
				r.write(fmt.Sprintf("web%d.yaml", i), manifest(fmt.Sprintf("web%d", i), "Always", nil, []string{"one forever", "two forever"}))
			}
			r.start(nil)
			r.await("the pods", func(s sim.Snapshot) bool { return s.Running() == 10 })
			r.untilPrinted([]string{"pods"}, "web0-node   2/2     Running", "web4-node   2/2     Running")
			args := []string{"chaos", "run", "builtin:" + name, "--report=" + filepath.Join(r.dir, "report")}
			if name == "staging" {
				args = append(args, "--dry-run")
			}
			out, notes, code := r.playlet(args...)
			t.Log(out)
			if code != 0 || !strings.Contains(out, "passed: the node was steady again after ") && name != "staging" {
				t.Errorf("%d %s", code, notes)
			}
			data, err := os.ReadFile(filepath.Join(r.dir, "report"))
			var report struct {
				Steps  []api.ChaosRule `json:"steps"`
				Passed bool            `json:"passed"`
			}
			if err := errors.Join(err, json.Unmarshal(data, &report)); err != nil || !report.Passed || len(report.Steps) < 4 {
				t.Errorf("the report: %v %s", err, strings.Join(strings.Fields(string(data)), " "))
			}
			if n := len(r.runtime.Calls("StartContainer")) + len(r.runtime.Calls("StopContainer")); n != 10 {
				t.Errorf("%d calls have started and stopped containers", n)
			}
			checkViolations(t, r.rig)
		})
	}
}

// An experiment fails where a container is restarted, and where the node is not steady before.
func TestAnExperimentFails(t *testing.T) {
	r := newRig(t, sim.Options{}, "--enable-chaos")
	r.write("web.yaml", manifest("web", "Always", nil, []string{"one forever"}))
	r.start(nil)
	r.untilPrinted([]string{"pods"}, "web-node   1/1     Running")
	file := filepath.Join(r.dir, "e.yaml")
	run := func(steady, step string) (string, string, int) {
		t.Helper()
		text := "apiVersion: playlet.dev/v1alpha1\nkind: ChaosExperiment\nspec:\n  maxTargets: 3\n  steady: {settle: 10s" + steady + "}\n  steps:\n  - " + step
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return r.playlet("chaos", "run", file)
	}
	pause := "{verb: pause, target: volumes, duration: 30s}"
	for want, f := range map[string]func() (string, string, int){
		"the command false: exit status 1":                   func() (string, string, int) { return run(", command: [\"false\"]", pause) },
		"more than maxTargets (3): nothing was done":         func() (string, string, int) { return run("", "{verb: kill, target: '**'}") },
		"the experiment needs 2 pods to be ready, and has 1": func() (string, string, int) { return run(", pods: 2", pause) },
	} {
		if out, notes, code := f(); code != 1 || !strings.Contains(notes, want) {
			t.Errorf("%d %s%s\nwant %s", code, out, notes, want)
		}
	}
	uid := r.runtime.Snapshot().Sandbox("web-node").UID
	go func() {
		for len(r.agent.observatory.chaos.List()) == 0 {
			time.Sleep(time.Millisecond)
		}
		_ = r.runtime.Exit(uid, "one", 1, "Error")
	}()
	began := time.Now()
	out, notes, code := run("", pause)
	if code != 1 || !strings.Contains(out, "check failed: container one of pod default/web-node was replaced: ") && !strings.Contains(out, "check failed: pod default/web-node is not ready") ||
		!strings.Contains(notes, "check") || !strings.Contains(notes, "aborted") || time.Since(began) > 25*time.Second {
		t.Errorf("%d %s%s", code, out, notes)
	}
	if rules := r.agent.observatory.chaos.List(); !rules[len(rules)-1].Over {
		t.Errorf("a rule is in force: %+v", rules)
	}
}

// Without the flag no fault can be injected, and each command reports the reason.
func TestChaosIsRefusedUnlessItIsEnabled(t *testing.T) {
	r := newRig(t, sim.Options{})
	r.start(nil)
	r.untilPrinted([]string{"actors"}, "node ")
	for _, args := range []string{"kill volumes", "kill volumes --dry-run", "list", "stop --all", "run builtin:kills"} {
		_, notes, code := r.playlet(append([]string{"chaos"}, strings.Fields(args)...)...)
		if code != 1 || notes != "playlet: chaos is not enabled: this agent was started without --enable-chaos\n" {
			t.Errorf("%s: %d %s", args, code, notes)
		}
	}
	if r.agent.system.KindOf("volumes") == "" || r.agent.observatory.chaos != nil {
		t.Error("there is an engine")
	}
}

// The acts of chaos on a standalone node are in "playlet events": of a rule that ends at once, and of one that is in force when
// the agent ends.
func TestChaos_InEventsOfStandaloneNode(t *testing.T) {
	r := newRig(t, sim.Options{}, "--enable-chaos")
	r.start(nil)
	if _, notes, code := r.playlet("chaos", "kill", "volumes", "--seed=4"); code != 0 {
		t.Fatal(notes)
	}
	r.untilPrinted([]string{"events"}, "Chaos", "playlet chaos injected 1 fault on purpose (rule 1: kill volumes --seed=4) into 1 part of the node agent: volumes; "+
		"containers keep running")
	if _, notes, code := r.playlet("chaos", "drop", "runtime", "--message=gets*", "--wait=false", "--count=-1", "--seed=9"); code != 0 {
		t.Fatal(notes)
	}
	r.agent.system.Tell("runtime", getsNothing{})
	r.untilPrinted([]string{"chaos", "list"}, " 1 of any ")
	r.stop()
	r.start(nil)
	r.untilPrinted([]string{"events"}, "(rule 2: drop runtime --message=gets* --seed=9) into 1 part of the node agent: runtime")
}
