//go:build e2e

package e2e

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// letBe is within which a rule acts, or finds that it may not.
const letBe = 5 * time.Second

// ruleDone and actorNow are the output of `playlet chaos list` and `playlet actors`.
type ruleDone struct {
	ID     uint64 `json:"id"`
	Verb   string `json:"verb"`
	Acted  int    `json:"acted"`
	Spared int    `json:"spared"`
	Over   bool   `json:"over"`
}

type actorNow struct {
	Path    string    `json:"path"`
	Kind    string    `json:"kind"`
	State   string    `json:"state"`
	Since   time.Time `json:"since"`
	Pod     string    `json:"pod"`
	Failure *struct {
		At time.Time `json:"at"`
	} `json:"failure"`
}

// ask runs a command that prints JSON until it is answered: the actor that serves commands is one of those that are killed.
func (s *soak) ask(into any, args ...string) {
	s.Helper()
	await(s.T, func() error {
		out, err := s.a.Command(s.Context(), append(args, "-o", "json")...)
		if err == nil {
			err = json.Unmarshal(out, into)
		}
		return err
	})
}

// look reads all actors.
func (s *soak) look() (actors []actorNow, goroutines int) {
	s.Helper()
	var tree struct {
		Actors     []actorNow `json:"actors"`
		Goroutines int        `json:"goroutines"`
	}
	s.ask(&tree, "actors")
	for _, a := range tree.Actors {
		if a.State == "quarantined" {
			s.Fatalf("actor %s of %s is in quarantine, and no rule may do that", a.Path, a.Pod)
		}
	}
	return tree.Actors, tree.Goroutines
}

// readRules reads the effects of the rules: the active ones, and the last hundred of the others.
func (s *soak) readRules() {
	s.Helper()
	var list struct {
		Rules []ruleDone `json:"rules"`
	}
	s.ask(&list, "chaos", "list")
	for _, r := range list.Rules {
		s.rules[r.ID] = r
	}
}

// breaks puts a rule in force.
func (s *soak) breaks(verb, target string, args ...string) uint64 {
	s.Helper()
	var rule ruleDone
	seed := fmt.Sprintf("--seed=%d", s.rng.Uint64N(1<<32)+1)
	s.ask(&rule, append([]string{"chaos", verb, target, seed, "--wait=false"}, args...)...)
	s.rules[rule.ID] = rule
	return rule.ID
}

// victim is an actor that runs: each kind is as likely as another.
func (s *soak) victim() actorNow {
	s.Helper()
	actors, _ := s.look()
	kinds := map[string][]actorNow{}
	for _, a := range actors {
		if a.State == "running" && a.Path != "" {
			kinds[a.Kind] = append(kinds[a.Kind], a)
		}
	}
	for kind := range kinds {
		s.kills[kind] += 0 // it could be
	}
	all := kinds[one(s.rng, slices.Sorted(maps.Keys(kinds)))]
	slices.SortFunc(all, func(x, y actorNow) int { // a path has a UID in it, which is no choice of the seed's
		last := func(a actorNow) string { return a.Path[strings.LastIndexByte(a.Path, '/')+1:] }
		if x.Kind == "pod" {
			return cmp.Compare(x.Pod, y.Pod)
		}
		return cmp.Or(cmp.Compare(x.Pod, y.Pod), cmp.Compare(last(x), last(y)))
	})
	return one(s.rng, all)
}

func one[T any](rng *rand.Rand, all []T) T { return all[rng.IntN(len(all))] }

// kill kills an actor, and waits until it runs and answers again, unless its supervisor would not bear it or it went with its
// pod.
func (s *soak) kill(before actorNow) {
	s.Helper()
	id := s.breaks("kill", before.Path, "--for="+letBe.String())
	why := ""
	var looks pause
	for deadline := time.Now().Add(waitLimit); time.Now().Before(deadline); looks.sleep() {
		s.readRules()
		if rule := s.rules[id]; rule.Acted == 0 && (rule.Over || rule.Spared > 0) {
			_, _ = s.a.Command(s.Context(), "chaos", "stop", strconv.FormatUint(id, 10)) // it may be over
			return
		} else if rule.Acted == 0 {
			why = "it is not killed yet"
			continue
		}
		actors, _ := s.look()
		i := slices.IndexFunc(actors, func(a actorNow) bool { return a.Path == before.Path })
		switch {
		case i < 0 && strings.HasPrefix(before.Pod, s.others+"/"):
			s.kills[before.Kind]++
			return
		case i < 0:
			why = "it is not there"
		case actors[i].State == "running" && actors[i].Since.After(before.Since):
			if _, err := s.a.Command(s.Context(), "actors", "inspect", before.Path); err != nil {
				why = "it does not answer: " + err.Error()
				continue
			}
			s.kills[before.Kind]++
			if f := actors[i].Failure; f != nil && f.At.After(before.Since) { // otherwise its parent was restarted as well
				s.recovered = append(s.recovered, time.Since(f.At))
			}
			return
		default:
			why = "it is " + actors[i].State
		}
	}
	s.Fatalf("actor %s of %s does not run again: %s", before.Path, before.Pod, why)
}

// disturb has an actor stand still, or messages to it, to its kind or to all be lost, late, doubled or overtaken.
func (s *soak) disturb(v actorNow) {
	s.Helper()
	milliseconds := func(most int) string { return fmt.Sprintf("--duration=%dms", 100+s.rng.IntN(most)) }
	verb := one(s.rng, []string{"pause", "drop", "duplicate", "delay", "reorder"})
	if verb == "pause" {
		s.breaks(verb, v.Path, "--for="+letBe.String(), milliseconds(1500))
		return
	}
	target := one(s.rng, []string{v.Path, "kind/" + v.Kind, "**"})
	probability, lasts := one(s.rng, []string{"0.1", "0.3"}), one(s.rng, []string{"500ms", "2s"})
	args := []string{"--count=-1", "--probability=" + probability, "--for=" + lasts}
	if verb == "delay" || verb == "reorder" {
		args = append(args, milliseconds(800))
	}
	s.breaks(verb, target, args...)
}

// resident is the memory of the agent, in KiB.
func (s *soak) resident() int {
	s.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.a.PID()))
	must(s.T, err)
	_, after, _ := strings.Cut(string(text), "\nVmRSS:")
	n, err := strconv.Atoi(strings.Fields(after)[0])
	must(s.T, err)
	return n
}
