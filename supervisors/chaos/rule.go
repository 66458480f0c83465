// Package chaos breaks the tree on purpose. Rules choose deliveries of messages, and kill, pause, drop, delay, double or
// reorder them. A rule's choices are a pure function of its seed: the same seed makes the same choices again.
//
// Whether a rule acts depends on its seed, the rule, the actor's path with its pod's name in place of the UID, the type of
// the message, and the number of earlier ones. The seed chooses the actors to kill or pause when the rule is put in force.
// For rules that wait for messages, it does not determine which of two actors gets its message first. Messages of an actor to
// itself are never lost, late or doubled. A message that reports a state (messages.Topic) is dropped after a newer one was
// handled: without chaos none overtakes another, so that receivers do not check. A supervisor's intensity is respected unless
// --force is given. A paused actor still stops. An experiment (playlet chaos run) is a list of rules. The command line puts
// them in force one after another, and checks pods, containers and actors four times a second.
package chaos

import (
	"errors"
	"fmt"
	"hash/fnv"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// Verb is the effect of a rule.
type Verb string

// The verbs.
const (
	Kill      Verb = "kill"      // the actor panics before it handles the message
	Pause     Verb = "pause"     // the actor stands still before it handles the message, for Duration or until it is stopped
	Delay     Verb = "delay"     // the message is handled when Duration has passed
	Drop      Verb = "drop"      // the message is lost
	Duplicate Verb = "duplicate" // the message is handled twice
	Reorder   Verb = "reorder"   // the message is handled at a time within Duration, behind those that come until then
)

// Verbs are all of them.
var Verbs = []Verb{Kill, Pause, Delay, Drop, Duplicate, Reorder}

// Limits and defaults of rules.
const (
	MaxDuration     = 10 * time.Minute
	MaxFor          = 24 * time.Hour
	DefaultDuration = time.Second
	DefaultFor      = time.Minute
)

// Rule is an effect, with its target and its frequency. An empty field has its default.
type Rule struct {
	Verb Verb `json:"verb"`
	// Target chooses actors: a path or a glob of one ("volumes", "sources/*"; "pods/**" are all below), "kind/KIND",
	// "pod/[NAMESPACE/]NAME" and "label/KEY=VALUE,..." for the actors of pods and of their containers. The root is chosen by
	// its own name, "node", alone.
	Target string `json:"target"`
	// Message is the type of the messages, or a glob of it; empty: any. Without it, kill and pause need no message to come.
	Message string `json:"message,omitempty"`
	// Count is how often it acts at most; 0 is once, and -1 as often as it can.
	Count int `json:"count,omitempty"`
	// Probability applies to each chosen delivery. It is above 0 and up to 1; 0 stands for 1.
	Probability float64 `json:"probability,omitempty"`
	// Duration is the length of a pause or a delay, and the maximum of a reordering. It defaults to DefaultDuration and is at
	// most MaxDuration. A pause ends with its rule.
	Duration metav1.Duration `json:"duration,omitzero"`
	// For is how long the rule is in force: DefaultFor, or twice Duration where that is longer; MaxFor at most.
	For metav1.Duration `json:"for,omitzero"`
	// Seed makes its choices; the same seed makes the same ones. 0 stands for 1.
	Seed uint64 `json:"seed,omitempty"`
	// Force lets it kill an actor more often than its supervisor allows, which puts the actor into quarantine or ends the agent.
	Force bool `json:"force,omitempty"`
}

// RandomSeed is a seed that a person can type again.
func RandomSeed() uint64 { return uint64(time.Now().Nanosecond()/1000) + 1 } //nolint:gosec // never negative

// String is the rule in short, as the command line has it.
func (r Rule) String() string {
	s := string(r.Verb) + " " + r.Target
	if r.Message != "" {
		s += " --message=" + r.Message
	}
	return s + " --seed=" + strconv.FormatUint(r.Seed, 10)
}

// FieldError is an invalid field of a rule.
type FieldError struct{ Field, Text string }

// Error implements error.
func (e *FieldError) Error() string { return e.Field + ": " + e.Text }

// Complete sets defaults and validates the rule. The error is a *FieldError, or several joined.
func (r *Rule) Complete() error {
	var errs []error
	wrong := func(bad bool, field, format string, args ...any) {
		if bad {
			errs = append(errs, &FieldError{field, fmt.Sprintf(format, args...)})
		}
	}
	wrong(!slices.Contains(Verbs, r.Verb), "verb", "%q is unknown; it may be %s", r.Verb, list(Verbs))
	_, err := parseTarget(r.Target)
	wrong(err != nil, "target", "%v", err)
	_, err = path.Match(r.Message, "")
	wrong(err != nil, "message", "%q is no glob", r.Message)
	wrong(r.Count < -1, "count", "%d is neither a number of times nor -1", r.Count)
	wrong(!(r.Probability >= 0 && r.Probability <= 1), "probability", "%v is not between 0 and 1", r.Probability)
	wrong(r.Duration.Duration < 0 || r.Duration.Duration > MaxDuration, "duration", "%s is not between 0 and %s",
		r.Duration.Duration, MaxDuration)
	wrong(r.For.Duration < 0 || r.For.Duration > MaxFor, "for", "%s is not between 0 and %s", r.For.Duration, MaxFor)
	set(&r.Count, 1)
	set(&r.Probability, 1)
	set(&r.Seed, 1)
	set(&r.For.Duration, max(DefaultFor, min(2*r.Duration.Duration, MaxFor)))
	if r.Verb == Pause || r.Verb == Delay || r.Verb == Reorder {
		set(&r.Duration.Duration, DefaultDuration)
	} else {
		wrong(r.Duration.Duration > 0, "duration", "%s has none; \"for\" is how long the rule is in force", r.Verb)
	}
	return errors.Join(errs...)
}

func set[T comparable](at *T, otherwise T) {
	var none T
	if *at == none {
		*at = otherwise
	}
}

func list[T ~string](all []T) string {
	out := make([]string, 0, len(all))
	for _, v := range all {
		out = append(out, string(v))
	}
	return strings.Join(out, ", ")
}

// choose decides whether the rule acts on a delivery: the ordinal-th of this type that it chose for this actor. fraction, in
// [0,1), is the seed's value for other choices. choose is pure.
func (r *Rule) choose(actor, message string, ordinal uint64) (act bool, fraction float64) {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d\x00%s\x00%s\x00%s\x00%s\x00%s\x00%d", r.Seed, r.Verb, r.Target, r.Message, actor, message, ordinal)
	x := mix(h.Sum64())
	return float(x) < r.Probability, float(mix(x))
}

// mix is the finalizer of SplitMix64. FNV alone maps similar inputs to similar hashes.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func float(x uint64) float64 { return float64(x>>11) / (1 << 53) }

// Pod holds the properties of a pod that targets can name.
type Pod struct {
	Namespace, Name string
	// Manifest is the name in its manifest, where the node's was appended to it.
	Manifest string
	Labels   map[string]string
}

// target is a Rule's Target, as it is matched.
type target struct {
	actor, below string // a glob of the whole path; or of its beginning, and all below is chosen
	kind         supervisors.Kind
	pod          string // "namespace/name", a glob
	labels       labels.Selector
}

func parseTarget(text string) (t target, err error) {
	what, rest, _ := strings.Cut(text, "/")
	switch {
	case text == "":
		return t, errors.New("which actors? a path, kind/KIND, pod/NAME or label/KEY=VALUE chooses them")
	case what == "kind":
		t.kind = supervisors.Kind(rest)
		var kinds []supervisors.Kind
		supervisors.Tree.Walk(func(_ string, r *supervisors.Row) { kinds = append(kinds, r.Kind) })
		if !slices.Contains(kinds, t.kind) {
			return t, fmt.Errorf("there is no kind of actor %q; there are %s", rest, list(kinds))
		}
		return t, nil
	case what == "label":
		t.labels, err = labels.Parse(rest)
		if err == nil && t.labels.Empty() {
			err = errors.New("label/ needs KEY=VALUE")
		}
		return t, err
	case what == "pod":
		if t.pod = rest; !strings.Contains(rest, "/") {
			t.pod = "*/" + rest
		}
		rest = t.pod
	case text == "**":
		t.below = "*"
		return t, nil
	default:
		rest = strings.TrimPrefix(text, "actor/")
		t.actor = rest
		if above, all := strings.CutSuffix(rest, "/**"); all {
			rest, t.actor, t.below = above, "", above+"/*"
		}
	}
	if _, err := path.Match(rest, ""); err != nil || rest == "" || strings.HasSuffix(rest, "/") {
		return t, fmt.Errorf("%q names no actor", text)
	}
	return t, nil
}

// match reports whether the target includes the actor. pod finds a pod by its UID.
func (t *target) match(a messages.Address, kind supervisors.Kind, pod func(uid string) (Pod, bool)) bool {
	glob := func(pattern, name string) bool { ok, _ := path.Match(pattern, name); return ok }
	switch {
	case t.kind != "":
		return kind == t.kind
	case t.below != "":
		if a == messages.Node {
			return false
		}
		depth := strings.Count(t.below, "/") + 1
		elements := strings.SplitN(string(a), "/", depth+1)
		return len(elements) >= depth && glob(t.below, strings.Join(elements[:depth], "/"))
	case t.actor != "" && (a.String() == t.actor || a != messages.Node && glob(t.actor, string(a))):
		return true
	}
	uid := a.PodUID()
	if uid == "" || t.actor != "" && !strings.HasPrefix(t.actor, string(messages.Pods)+"/") {
		return false
	}
	p, ok := pod(uid)
	switch {
	case !ok:
		return false
	case t.labels != nil:
		return t.labels.Matches(labels.Set(p.Labels))
	}
	below := strings.TrimPrefix(string(a), string(messages.PodAddress(uid))) // a path with the pod's name, as people see it
	for _, name := range []string{p.Name, p.Manifest} {
		full := p.Namespace + "/" + name
		if name != "" && (t.pod != "" && glob(t.pod, full) || t.actor == "pods/"+name+below || t.actor == "pods/"+full+below) {
			return true
		}
	}
	return false
}
