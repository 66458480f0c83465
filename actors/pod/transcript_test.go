package pod

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/playlet-dev/playlet/actors/internal/objectset"
	"github.com/playlet-dev/playlet/messages"
)

var update = flag.Bool("update", false, "write the transcripts of testdata instead of comparing them")

// TestTranscripts replays each scenario of testdata and compares the messages and effects with the recorded ones. A scenario is
// lines of comment, commands that begin with "> ", and below each command the transcript that it causes: each message with its
// time, and indented below it the machine's effects. The commands are the keys of commands; "> pod" has a pod in YAML below it.
// After a change, run with -update and read the difference: it is the change of behaviour.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) < 30 {
		t.Fatalf("found %d transcripts, want at least 30: %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			s := &scenario{t: t}
			got := s.replay(string(want))
			check(t, s.world)
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != string(want) {
				t.Errorf("%s differs; run this test with -update and read the difference:\n%s", file, firstDifference(got, string(want)))
			}
		})
	}
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			return fmt.Sprintf("line %d\n got %s\nwant %s", i+1, g[i], w[i])
		}
	}
	return fmt.Sprintf("got %d lines, want %d", len(g), len(w))
}

// scenario replays one transcript.
type scenario struct {
	t     *testing.T
	world *world
	start time.Time
	out   strings.Builder
	runs  bool      // the pod's actor has started; messages are not delivered before
	quiet bool      // the steps of this command are left out
	lose  string    // the type of the next message to lose
	wake  time.Time // the machine's last one
}

// commands are the commands of scenarios with their arguments.
var commands = map[string]func(s *scenario, args []string){
	// run starts the pod's actor and delivers all messages, in order. "run quietly" leaves these steps out.
	"run": func(s *scenario, args []string) {
		s.runs, s.quiet = true, len(args) > 0
		s.world.step(nil)
	},
	// wait DURATION advances the clock, with all events that fall due.
	"wait": func(s *scenario, args []string) { s.wait(s.duration(args[0])) },
	// exit CONTAINER CODE ends a container's process.
	"exit": func(s *scenario, args []string) {
		code := s.number(args[1])
		s.world.exitContainer(s.container(args[0]), int32(code))
		s.world.send(s.world.observed())
	},
	// delete [GRACE] deletes the pod, with the given grace period or its own.
	"delete": func(s *scenario, args []string) {
		ending := messages.Ending{Reason: "it was deleted", Since: s.world.now}
		if len(args) > 0 {
			ending.Grace = new(int64(s.duration(args[0]).Seconds()))
		}
		if s.world.ending != nil {
			s.world.edits++
		}
		s.world.ending = &ending
		if objectset.OfAPIServer(s.world.pod) {
			s.world.pod = s.world.pod.DeepCopy()
			s.world.pod.DeletionTimestamp = &metav1.Time{Time: s.world.now}
		}
		s.world.send(s.world.desired())
	},
	// evict makes the node end the pod.
	"evict": func(s *scenario, _ []string) {
		s.world.edits++
		s.world.fail = &messages.PodFailure{Reason: "Evicted", Message: "The node was low on resource: memory.", Grace: new(int64(0))}
		s.world.send(s.world.desired())
	},
	// preempt ends the pod for a more important one.
	"preempt": func(s *scenario, _ []string) { s.world.preempt() },
	// image CONTAINER IMAGE changes the image in the pod's spec.
	"image": func(s *scenario, args []string) {
		s.world.edit(func(spec *v1.PodSpec) {
			for i := range spec.Containers {
				if spec.Containers[i].Name == args[0] {
					spec.Containers[i].Image = args[1]
				}
			}
		})
	},
	// resize CONTAINER MEMORY allocates another memory limit to a container.
	"resize": func(s *scenario, args []string) {
		s.world.resized = true
		s.world.edit(func(spec *v1.PodSpec) {
			for i := range spec.Containers {
				if spec.Containers[i].Name == args[0] {
					quantity := resource.MustParse(args[1])
					spec.Containers[i].Resources = limitedTo(quantity.Value())
				}
			}
		})
		s.world.pod.Generation++
	},
	// pulls (hang|work|fail CONTAINER CODE) decides how images are pulled.
	"pulls": func(s *scenario, args []string) {
		switch s.world.noImages = args[0] != "work"; args[0] {
		case "fail":
			c := s.world.specNamed(args[1])
			s.world.send(messages.ImageFailed{Key: messages.ImageKey{UID: "u1", Container: args[1]}, Image: c.Image,
				Reason: messages.Reason{Code: args[2], Message: "failed to pull image " + c.Image, RetryAt: s.world.now.Add(10 * time.Second)}})
		case "work":
			for i := range s.world.pod.Spec.Containers {
				if c := &s.world.pod.Spec.Containers[i]; s.world.machine.Container(c.Name).Newest() == nil {
					s.world.send(pulled(c.Name, c.Image))
				}
			}
		}
	},
	// volumes (hang|work|fail VOLUME) decides how volumes are mounted.
	"volumes": func(s *scenario, args []string) {
		switch s.world.noVolumes = args[0] != "work"; args[0] {
		case "fail":
			s.world.send(messages.VolumesFailed{UID: "u1", Volume: args[1], Reason: messages.Reason{Code: "FailedMount",
				Message: "the server is away", RetryAt: s.world.now.Add(10 * time.Second)}})
		case "work":
			s.world.mounted = true
			s.world.send(messages.VolumesMounted{UID: "u1", Paths: map[string]string{}})
		}
	},
	// probe CONTAINER KIND (fails|succeeds) decides the outcome of a probe.
	"probe": func(s *scenario, args []string) {
		if s.world.sick == nil {
			s.world.sick = map[string]bool{}
		}
		s.world.sick[args[0]+"/"+args[1]] = args[2] == "fails"
	},
	// network (down|up) changes the node's network.
	"network": func(s *scenario, args []string) { s.world.network(args[0] == "up") },
	// starts fail N creates the next containers and fails their starts.
	"starts": func(s *scenario, args []string) { s.world.halfway = s.number(args[1]) },
	// lost-sandbox ends the pod's sandbox with all its containers.
	"lost-sandbox": func(s *scenario, _ []string) {
		s.world.sandboxes[0].Ready = false
		s.world.killIn(s.world.sandboxes[0].ID)
		s.world.send(s.world.observed())
	},
	// reboot ends all sandboxes and the agent.
	"reboot": func(s *scenario, _ []string) {
		for i := range s.world.sandboxes {
			s.world.sandboxes[i].Ready = false
			s.world.killIn(s.world.sandboxes[i].ID)
		}
		s.world.restart()
	},
	// kill-actor kills the pod's actor: the next one has no state. With "deleted" the pod is deleted meanwhile.
	"kill-actor": func(s *scenario, args []string) {
		if len(args) > 0 {
			s.world.ending = &messages.Ending{Reason: "it was deleted", Since: s.world.now}
		}
		s.world.restart()
	},
	// kill-service NAME restarts another actor, which loses the pod.
	"kill-service": func(s *scenario, args []string) {
		if args[0] == "prober" {
			s.world.watched = nil
		}
		s.world.send(messages.ServiceStarted{Service: messages.Address(args[0])})
	},
	// lose MESSAGE loses the next message of this type on its way to the pod.
	"lose": func(s *scenario, args []string) { s.lose = args[0] },
	// stops (hang|work) decides whether containers stop on request.
	"stops": func(s *scenario, args []string) { s.world.stubborn = args[0] == "hang" },
	// restart CONTAINER... restarts containers as "playlet restart" does.
	"restart": func(s *scenario, args []string) {
		ids := map[string]string{}
		for _, name := range args {
			ids[name] = s.container(name).ID
		}
		s.world.send(messages.RestartContainers{UID: "u1", IDs: ids})
	},
	// debug NAME TARGET adds an ephemeral container.
	"debug": func(s *scenario, args []string) {
		s.world.edits++
		s.world.pod = debugged(s.world.pod, args[0], args[1])
		s.world.send(s.world.desired())
	},
}

// replay returns the scenario with the transcript of this run.
func (s *scenario) replay(text string) string {
	lines := strings.SplitAfter(text, "\n")
	for i := 0; i < len(lines); i++ {
		line := strings.TrimSuffix(lines[i], "\n")
		switch {
		case strings.HasPrefix(line, "#") || s.world == nil && line == "":
			s.out.WriteString(lines[i])
		case strings.HasPrefix(line, "> pod"):
			s.out.WriteString(lines[i])
			end := i + 1
			for end < len(lines) && strings.TrimSpace(lines[end]) != "" {
				end++
			}
			manifest := strings.Join(lines[i+1:end], "")
			s.out.WriteString(manifest)
			s.begin(manifest, strings.HasSuffix(line, " of the API server"))
			i = end - 1
		case strings.HasPrefix(line, "> "):
			s.command(line)
		}
	}
	return s.out.String()
}

func (s *scenario) begin(manifest string, ofAPIServer bool) {
	pod := testPod(v1.RestartPolicyAlways, 0, 0)
	if err := yaml.UnmarshalStrict([]byte(manifest), &pod.Spec); err != nil {
		s.t.Fatal(err)
	}
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Image == "" {
			pod.Spec.Containers[i].Image = "image"
		}
	}
	if ofAPIServer {
		pod.Annotations = map[string]string{objectset.SourceAnnotation: objectset.APISource}
	}
	s.world = newWorld(pod)
	if ofAPIServer {
		s.world.carry()
	}
	s.start = s.world.now
	s.world.record = s.write
}

func (s *scenario) command(line string) {
	fields := strings.Fields(strings.TrimPrefix(line, "> "))
	run := commands[fields[0]]
	if run == nil || s.world == nil {
		s.t.Fatalf("unknown command %q, or no pod before it", line)
	}
	s.out.WriteString("\n" + line + "\n")
	before := s.wake
	run(s, fields[1:])
	if !s.runs {
		s.world.pending = nil // the pod's actor requests everything again
	}
	s.deliver()
	if s.wake != before && s.wake.After(s.world.now) && !s.quiet {
		fmt.Fprintf(&s.out, "        next wake-up at %s\n", s.since(s.wake))
	}
	s.quiet = false
}

// deliver delivers all messages, in order, without advancing the clock.
func (s *scenario) deliver() {
	for range 1000 {
		if len(s.world.pending) > 0 {
			next := s.world.pending[0]
			s.world.pending = s.world.pending[1:]
			if d, ok := next.(delayedEvent); ok {
				if next = d(); next == nil {
					continue
				}
			}
			if reflect.TypeOf(next).Name() == s.lose {
				s.lose = ""
				fmt.Fprintf(&s.out, "%6s  %s is lost\n", s.since(s.world.now), received(next))
				continue
			}
			s.world.step(next)
		} else if !s.world.probeOnce() {
			return
		}
	}
	s.t.Fatalf("messages without end:\n%s", s.out.String())
}

func (s *scenario) wait(d time.Duration) {
	until := s.world.now.Add(d)
	for range 1000 {
		next := s.world.nextTime()
		if next.IsZero() || next.After(until) {
			break
		}
		s.world.now = next
		s.world.step(nil)
		s.deliver()
	}
	s.world.now = until
}

func (s *scenario) container(name string) *messages.ContainerFact {
	i := slices.IndexFunc(s.world.containers, func(c messages.ContainerFact) bool { return c.Name == name })
	if i < 0 {
		s.t.Fatalf("no container %s", name)
	}
	return &s.world.containers[i]
}

func (s *scenario) duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		s.t.Fatal(err)
	}
	return d
}

func (s *scenario) number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

// write adds one step of the machine.
func (s *scenario) write(msg any, effects []Effect) {
	if s.quiet {
		return
	}
	fmt.Fprintf(&s.out, "%6s  %s\n", s.since(s.world.stepAt), received(msg))
	for _, e := range effects {
		if wake, ok := e.(Wake); ok {
			s.wake = wake.At
			continue
		}
		fmt.Fprintf(&s.out, "          %s\n", effectLine(e, s.world.present))
	}
}

// since returns the time since the start of the scenario.
func (s *scenario) since(at time.Time) time.Duration {
	return at.Sub(s.start).Truncate(100 * time.Millisecond)
}
