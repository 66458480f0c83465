//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/e2e/stack"
	corev1 "k8s.io/api/core/v1"
)

// pressure is a node's reaction to a shortage, from a moment on.
type pressure struct {
	t    *testing.T
	a    *stack.Agent
	from int // in the agent's log
	at   time.Time
}

// cross is the moment before something is used up.
func cross(t *testing.T, a *stack.Agent) *pressure {
	return &pressure{t, a, len(a.Log()), time.Now()}
}

var (
	logTime   = regexp.MustCompile(`^time=(\S+)`)
	logSignal = regexp.MustCompile(` (?:signal=|reason=")([a-z.A-Z]+)`)
	logPod    = regexp.MustCompile(` pod=default/(\S+)-node0`)
)

// acts returns the agent's acts since then, in order: "met SIGNAL", "containers", "images", "evicted POD by SIGNAL". It omits
// repetitions. first is the time of the first act other than a met threshold.
func (p *pressure) acts() (list []string, first time.Time) {
	p.t.Helper()
	word := func(in *regexp.Regexp, line string) string {
		if found := in.FindStringSubmatch(line); found != nil {
			return found[1]
		}
		return ""
	}
	for line := range strings.Lines(p.a.Log()[p.from:]) {
		act := ""
		switch {
		case strings.Contains(line, `msg="eviction threshold met"`):
			act = "met " + word(logSignal, line)
		case strings.Contains(line, `msg="removed dead containers, sandboxes and logs"`):
			act = "containers"
		case strings.Contains(line, `msg="removed unused images"`):
			act = "images"
		case strings.Contains(line, `msg="evicting a pod"`):
			act = "evicted " + word(logPod, line) + " by " + word(logSignal, line)
		default:
			continue
		}
		if first.IsZero() && !strings.HasPrefix(act, "met ") {
			when, err := time.Parse(time.RFC3339, word(logTime, line))
			must(p.t, err)
			first = when
		}
		list = append(list, act)
	}
	return slices.Compact(list), first
}

// ends waits until the pressure, once begun, is over, and checks the acts in between, and that no further pods were evicted. An
// empty condition is for a shortage without a pressure of the node.
func (p *pressure) ends(condition corev1.NodeConditionType, want ...string) {
	p.t.Helper()
	if condition != "" {
		await(p.t, func() error {
			log := p.a.Log()[p.from:]
			begun := strings.Index(log, "condition="+string(condition)+" under=true")
			if begun < 0 || !strings.Contains(log[begun:], "condition="+string(condition)+" under=false") {
				return fmt.Errorf("the pressure does not come and go: %s", log)
			}
			return nil
		})
	}
	got, first := p.acts()
	if !slices.Equal(got, want) {
		p.t.Errorf("done was %q, want %q", got, want)
	}
	if first.IsZero() {
		return
	}
	p.t.Logf("%q: from crossing to the first action %s, to this end %s", want, first.Sub(p.at).Round(10*time.Millisecond),
		time.Since(p.at).Round(10*time.Millisecond))
}

// inside is a path as a pod's container c sees it.
func inside(t *testing.T, s *stack.Stack, name, path string) string {
	t.Helper()
	pid, err := s.ContainerPID(t.Context(), up(t, s, name, "c").Id)
	must(t, err)
	return filepath.Join("/proc", strconv.Itoa(pid), "root", path)
}

// unharmed checks that a pod is unchanged: the same container, never restarted.
func unharmed(t *testing.T, s *stack.Stack, a *stack.Agent, name, was string) {
	t.Helper()
	if now := awaitPod(t, a, name, ready); up(t, s, name, "c").Id != was || now.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("the other pod is %+v", now.Status)
	}
}

// short is an agent that evicts static pods too, by these thresholds beside none of memory.
func short(t *testing.T, s *stack.Stack, thresholds map[string]string, change func(*stack.Agent)) *stack.Agent {
	t.Helper()
	return agentWith(t, s, func(a *stack.Agent) {
		a.Args = append(a.Args, "--evict-static-pods")
		thresholds["memory.available"] = "1Mi"
		a.Config["evictionHard"], a.Config["evictionPressureTransitionPeriod"] = thresholds, "1s"
		if change != nil {
			change(a)
		}
	})
}

// A pod that uses up the inodes of the node's file system is evicted, and no other one is.
func TestAPodThatUsesUpInodesIsEvicted(t *testing.T) {
	s := stack.Start(t, stack.Options{})
	a := short(t, s, map[string]string{"nodefs.inodesFree": "500"}, func(a *stack.Agent) { smallDisk(t, a.RootDir, 50, "-N", "2000") })
	for _, name := range []string{"hog", "small"} {
		must(t, a.Write(name+".yaml", manifest(s, name, withVolume(""))))
	}
	must(t, stack.UseInodes(inside(t, s, "small", "/v"), 100))
	must(t, stack.Fill(inside(t, s, "small", "/v/much"), 5<<20)) // of bytes it uses most
	hog, was := inside(t, s, "hog", "/v"), up(t, s, "small", "c").Id
	awaitPod(t, a, "hog", ready)
	p := cross(t, a)
	must(t, stack.UseInodes(hog, 1500))
	awaitPod(t, a, "hog", evicted("The node was low on resource: inodes. Threshold quantity: 500, available: "))
	p.ends(corev1.NodeDiskPressure, "met nodefs.inodesFree", "containers", "evicted hog by nodefs.inodesFree")
	unharmed(t, s, a, "small", was)
}

// Files that the agent keeps for a pod count as its local storage: its log, its termination log, its /etc/hosts.
func TestWhatIsKeptForAPodIsBounded(t *testing.T) {
	s := stack.Start(t, stack.Options{})
	a := short(t, s, map[string]string{}, nil)
	const limited = `containers: [{name: c, image: HELLO, args: [sleep], resources: {limits: {ephemeral-storage: 1Mi}}}]`
	fills := map[string]func(at string) error{
		"log": func(at string) error { // its process's output, as the runtime gets it
			f, err := os.OpenFile(filepath.Join(at, "../fd/1"), os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteString(strings.Repeat(strings.Repeat("x", 1000)+"\n", 2000))
			return errors.Join(err, f.Close())
		},
		"message": func(at string) error { return stack.Fill(filepath.Join(at, "dev/termination-log"), 2<<20) },
		"hosts":   func(at string) error { return stack.Fill(filepath.Join(at, "etc/hosts"), 2<<20) },
		"within":  func(at string) error { return stack.Fill(filepath.Join(at, "etc/hosts"), 1<<19) },
	}
	for name := range fills {
		must(t, a.Write(name+".yaml", manifest(s, name, limited)))
	}
	roots := map[string]string{}
	for name := range fills {
		awaitPod(t, a, name, ready)
		roots[name] = inside(t, s, name, "/")
	}
	was := up(t, s, "within", "c").Id
	p := cross(t, a)
	for name, fill := range fills {
		must(t, fill(roots[name]))
	}
	for name := range fills {
		if name != "within" {
			awaitPod(t, a, name, evicted("Pod ephemeral local storage usage exceeds the total limit of containers 1Mi. "))
			t.Logf("%s: from crossing to Failed %s", name, time.Since(p.at).Round(10*time.Millisecond))
		}
	}
	got, _ := p.acts()
	slices.Sort(got)
	if want := []string{"evicted hosts by ephemeralpodfs.limit", "evicted log by ephemeralpodfs.limit",
		"evicted message by ephemeralpodfs.limit"}; !slices.Equal(got, want) {
		t.Errorf("done was %q, want %q", got, want)
	}
	unharmed(t, s, a, "within", was)
}

// Files that the agent keeps for a pod count in the ranking: a pod that fills the node's file system with them is evicted, and no
// other one.
func TestEviction_CountsTheAgentsFilesOfAPod(t *testing.T) {
	s := stack.Start(t, stack.Options{})
	a := short(t, s, map[string]string{"nodefs.available": "20Mi"}, func(a *stack.Agent) { smallDisk(t, a.RootDir, 100) })
	paths := map[string]string{"message": "/dev/termination-log", "hosts": "/etc/hosts"}
	for _, name := range []string{"message", "hosts", "small"} {
		must(t, a.Write(name+".yaml", manifest(s, name, withVolume(""))))
	}
	must(t, stack.Fill(inside(t, s, "small", "/v/much"), 5<<20))
	was := up(t, s, "small", "c").Id
	for _, name := range []string{"message", "hosts"} {
		awaitPod(t, a, name, ready)
		path := inside(t, s, name, paths[name])
		p := cross(t, a)
		must(t, stack.Fill(path, 70<<20))
		awaitPod(t, a, name, evicted("The node was low on resource: ephemeral-storage. Threshold quantity: 20Mi, available: "))
		p.ends(corev1.NodeDiskPressure, "met nodefs.available", "containers", "evicted "+name+" by nodefs.available")
	}
	unharmed(t, s, a, "small", was)
}
