package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/yaml"

	"github.com/playlet-dev/playlet/actors/pods"
	"github.com/playlet-dev/playlet/cri/sim"
)

// TestCalls replays scenarios of testdata/calls against the whole agent and compares the calls that change something in the
// runtime with the recorded ones. They are the second half of the transcripts of actors/pod: those show the machine's decisions,
// these their effect. A scenario has lines of comment, a pod's spec below "> pod", and commands, each with the state that it
// leads to: "> exit app 1, until app 1 runs". Below a command are its calls, in order. Successive calls with the same name are
// sorted, since containers are stopped and removed at the same time; pulls are listed first.
func TestCalls(t *testing.T) {
	files, err := filepath.Glob("testdata/calls/*.txt")
	if err != nil || len(files) < 15 {
		t.Fatalf("found %d scenarios, want at least 15: %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			r := newRig(t, sim.Options{}, "--minimum-container-ttl-duration=1h") // dead containers are not collected meanwhile
			s := &callScenario{rig: r}
			got := s.replay(string(want))
			for _, v := range r.runtime.Violations() {
				t.Errorf("violation: %s", v)
			}
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != string(want) {
				t.Errorf("%s differs; run this test with -update and read the difference. Got:\n%s", file, got)
			}
		})
	}
}

// callScenario replays one scenario.
type callScenario struct {
	rig *rig
	out strings.Builder
	seq uint64 // of the last call that is written
}

// replay returns the scenario with the calls of this run.
func (s *callScenario) replay(text string) string {
	lines := strings.SplitAfter(text, "\n")
	for i := 0; i < len(lines); i++ {
		line := strings.TrimSpace(lines[i])
		switch {
		case strings.HasPrefix(line, "#"):
			s.out.WriteString(lines[i])
		case line == "> pod":
			end := i + 1
			for end < len(lines) && strings.TrimSpace(lines[end]) != "" {
				end++
			}
			s.out.WriteString("\n" + strings.Join(lines[i:end], ""))
			s.rig.start(nil)
			s.rig.write("web.yaml", s.manifest(strings.Join(lines[i+1:end], "")))
			i = end - 1
		case strings.HasPrefix(line, "> "):
			s.out.WriteString("\n" + line + "\n")
			command, state, _ := strings.Cut(strings.TrimPrefix(line, "> "), ", until ")
			s.command(strings.Fields(command))
			s.await(state)
			s.write()
		}
	}
	return s.out.String()
}

// manifest returns the pod with this spec in YAML. Containers have an image.
func (s *callScenario) manifest(spec string) string {
	var fields map[string]any
	if err := yaml.Unmarshal([]byte(spec), &fields); err != nil {
		s.rig.t.Fatal(err)
	}
	for _, list := range []string{"initContainers", "containers"} {
		containers, _ := fields[list].([]any)
		for _, c := range containers {
			c.(map[string]any)["image"] = "image:1"
		}
	}
	out, err := yaml.Marshal(map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "web"}, "spec": fields})
	if err != nil {
		s.rig.t.Fatal(err)
	}
	return string(out)
}

func (s *callScenario) command(args []string) {
	switch args[0] {
	case "run":
	case "exit":
		code, err := strconv.Atoi(args[2])
		if err != nil {
			s.rig.t.Fatal(err)
		}
		if err := s.rig.runtime.Exit(s.rig.runtime.Snapshot().Sandboxes[0].UID, args[1], int32(code), ""); err != nil {
			s.rig.t.Fatal(err)
		}
	case "delete":
		s.rig.remove("web.yaml")
	case "restart-agent":
		s.rig.stop()
		s.rig.start(nil)
	case "reboot":
		s.rig.stop()
		if err := s.rig.runtime.Reboot(); err != nil {
			s.rig.t.Fatal(err)
		}
		s.rig.start(nil)
	default:
		s.rig.t.Fatalf("unknown command %q", args[0])
	}
}

// await waits for a state: "NAME ATTEMPT runs", "nothing", or a phase of the pod's status; a pod that has ended has also
// been cleaned up.
func (s *callScenario) await(state string) {
	fields := strings.Fields(state)
	switch {
	case state == "nothing":
		s.rig.await(state, func(s sim.Snapshot) bool { return len(s.Sandboxes)+len(s.Containers) == 0 })
		s.rig.eventually("no pod is left", func() bool { return len(s.rig.agent.observatory.board.Now().Pods) == 0 })
	case len(fields) == 3 && fields[2] == "runs":
		s.rig.await(state, func(s sim.Snapshot) bool {
			return slices.ContainsFunc(s.Containers, func(c *sim.ContainerState) bool {
				return c.Name == fields[0] && fmt.Sprint(c.Attempt) == fields[1] && c.State == runtimeapi.ContainerState_CONTAINER_RUNNING
			})
		})
	case len(fields) == 1:
		s.rig.awaitPod("web-node", func(p *pods.PublishedPod) bool {
			return p.Status != nil && string(p.Status.Phase) == state && (state == string(v1.PodRunning) || p.Phase == "finished")
		})
	default:
		s.rig.t.Fatalf("unknown state %q", state)
	}
}

// changingCalls are the calls that change something.
var changingCalls = []string{"RunPodSandbox", "StopPodSandbox", "RemovePodSandbox", "CreateContainer", "StartContainer", "StopContainer",
	"RemoveContainer", "UpdateContainerResources", "PullImage", "RemoveImage", "ExecSync"}

// write adds the calls since the last one, once all of them have ended.
func (s *callScenario) write() {
	var entries []sim.Entry
	s.rig.eventually("all calls have ended", func() bool {
		entries = slices.DeleteFunc(s.rig.runtime.Journal(), func(e sim.Entry) bool {
			return e.Seq <= s.seq || !slices.Contains(changingCalls, e.Call)
		})
		return !slices.ContainsFunc(entries, func(e sim.Entry) bool { return !e.Done() })
	})
	var pulls, lines []string
	for _, e := range entries {
		s.seq = max(s.seq, e.Seq)
		if e.Call == "PullImage" {
			pulls = append(pulls, "    PullImage "+e.Image)
			continue
		}
		line := "    " + e.Call
		if e.Container != "" {
			line += " " + e.Container
		}
		lines = append(lines, fmt.Sprintf("%s %d", line, e.Attempt))
	}
	for i := 0; i < len(lines); {
		end := i
		for end < len(lines) && strings.Fields(lines[end])[0] == strings.Fields(lines[i])[0] {
			end++
		}
		slices.Sort(lines[i:end])
		i = end
	}
	slices.Sort(pulls)
	for _, line := range append(pulls, lines...) {
		s.out.WriteString(line + "\n")
	}
}
