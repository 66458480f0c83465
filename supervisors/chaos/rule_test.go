package chaos

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

func podOf(uid string) (Pod, bool) {
	p, ok := map[string]Pod{
		"u1": {Namespace: "default", Name: "web", Labels: map[string]string{"app": "web"}}, "u2": {Namespace: "shop", Name: "web-2", Manifest: "w2", Labels: map[string]string{"app": "web", "tier": "db"}},
	}[uid]
	return p, ok
}

func TestTargetsChooseActors(t *testing.T) {
	actors := map[messages.Address]supervisors.Kind{
		"": "node", "volumes": "volumes", "sources": "sources", "sources/file": "file", "pods": "pods", "pods/u1": "pod",
		"pods/u1/c": "container", "pods/u2": "pod", "pods/u3": "pod",
	}
	for text, want := range map[string]string{
		"volumes": "volumes", "actor/volumes": "volumes", "vol*": "volumes", "nothing": "", "node": "node", "kind/node": "node",
		"*": "pods sources volumes", "**": "pods pods/u1 pods/u1/c pods/u2 pods/u3 sources sources/file volumes",
		"pods/**": "pods/u1 pods/u1/c pods/u2 pods/u3", "pods/u1/**": "pods/u1/c", "*/**": "pods/u1 pods/u1/c pods/u2 pods/u3 sources/file",
		"pods/u?": "pods/u1 pods/u2 pods/u3", "pods/*/*": "pods/u1/c",
		"pods/w2": "pods/u2", "pod/w2": "pods/u2", "pod/shop/w2": "pods/u2", "pods/web": "pods/u1", "pods/default/web": "pods/u1", "pods/web/c": "pods/u1/c", "pods/other/web": "",
		"kind/pod": "pods/u1 pods/u2 pods/u3", "kind/container": "pods/u1/c",
		"pod/web": "pods/u1 pods/u1/c", "pod/web*": "pods/u1 pods/u1/c pods/u2", "pod/shop/*": "pods/u2", "pod/shop/web": "",
		"label/app=web": "pods/u1 pods/u1/c pods/u2", "label/app=web,tier!=db": "pods/u1 pods/u1/c", "label/tier": "pods/u2",
	} {
		target, err := parseTarget(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		var got []string
		for _, a := range []messages.Address{"", "pods", "pods/u1", "pods/u1/c", "pods/u2", "pods/u3", "sources", "sources/file", "volumes"} {
			if target.match(a, actors[a], podOf) {
				got = append(got, a.String())
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s chooses %v, not %s", text, got, want)
		}
	}
}

func TestWrongRule_RefusedByField(t *testing.T) {
	ok := Rule{Verb: Kill, Target: "volumes"}
	for want, change := range map[string]func(*Rule){
		`verb: "break" is unknown; it may be kill, pause, `: func(r *Rule) { r.Verb = "break" },
		"target: which actors?":                             func(r *Rule) { r.Target = "" },
		`target: there is no kind of actor "pd"; there are`: func(r *Rule) { r.Target = "kind/pd" },
		`target: "pod/" names no actor`:                     func(r *Rule) { r.Target = "pod/" },
		`target: "/**" names no actor`:                      func(r *Rule) { r.Target = "/**" },
		`target: "volumes[" names no actor`:                 func(r *Rule) { r.Target = "volumes[" },
		"target: label/ needs KEY=VALUE":                    func(r *Rule) { r.Target = "label/" },
		"target: unable to parse":                           func(r *Rule) { r.Target = "label/a=(" },
		"message: ":                                         func(r *Rule) { r.Message = "[" },
		"count: -2":                                         func(r *Rule) { r.Count = -2 },
		"probability: 1.5":                                  func(r *Rule) { r.Probability = 1.5 },
		"probability: NaN":                                  func(r *Rule) { r.Probability = math.NaN() },
		"duration: kill has none":                           func(r *Rule) { r.Duration.Duration = time.Second },
		"duration: 1h0m0s is not":                           func(r *Rule) { r.Verb, r.Duration.Duration = Pause, time.Hour },
		"for: 48h0m0s is not":                               func(r *Rule) { r.For.Duration = 48 * time.Hour },
	} {
		r := ok
		change(&r)
		if err := r.Complete(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, not %s", r, err, want)
		}
	}
	r := Rule{Verb: Pause, Target: "volumes", Duration: metav1.Duration{Duration: 5 * time.Minute}}
	if err := r.Complete(); err != nil || r.Count != 1 || r.Probability != 1 || r.Seed != 1 || r.For.Duration != 10*time.Minute {
		t.Errorf("%v %+v", err, r)
	}
}

// A seed repeats its choices, and another seed makes others. The share of chosen deliveries approaches the probability.
func TestASeedMakesTheSameChoices(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := Rule{Verb: Drop, Target: "**", Seed: rapid.Uint64Min(1).Draw(t, "seed"), Probability: rapid.Float64Range(0.05, 0.95).Draw(t, "p")}
		same, other := r, r
		other.Seed++
		acted, differ := 0, 0
		const n = 2000
		for i := range n {
			a, message := messages.Address(fmt.Sprintf("pods/u%d", i%7)), fmt.Sprintf("M%d", i%3)
			x, fx := r.choose(string(a), message, uint64(i))
			y, fy := same.choose(string(a), message, uint64(i))
			z, _ := other.choose(string(a), message, uint64(i))
			if x != y || fx != fy || fx < 0 || fx >= 1 {
				t.Fatalf("%v %v, %v %v", x, fx, y, fy)
			}
			if x {
				acted++
			}
			if x != z {
				differ++
			}
		}
		if got := float64(acted) / n; math.Abs(got-r.Probability) > 0.08 {
			t.Errorf("%v of the deliveries were chosen with probability %v", got, r.Probability)
		}
		if differ == 0 {
			t.Error("another seed has made the same choices")
		}
	})
}
