package chaos

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// Before implements supervisors.Interceptor.
func (e *Engine) Before(d supervisors.Delivery) supervisors.Verdict {
	for _, r := range e.inForce() {
		v, done := e.try(r, d)
		if done {
			e.end(r)
		}
		if v.Effect != supervisors.None {
			return v
		}
	}
	return supervisors.Verdict{}
}

// After implements supervisors.Interceptor.
func (e *Engine) After(supervisors.Delivery) supervisors.Verdict { return supervisors.Verdict{} }

var effects = map[Verb]supervisors.Effect{
	Kill: supervisors.Panic, Pause: supervisors.Hold, Delay: supervisors.Delay, Drop: supervisors.Drop,
	Duplicate: supervisors.Duplicate, Reorder: supervisors.Delay,
}

// try applies the rule to a delivery. done reports whether the rule has reached its count.
func (e *Engine) try(r *rule, d supervisors.Delivery) (v supervisors.Verdict, done bool) {
	verb, message := r.status.Verb, d.MessageKind()
	if verb != Kill && verb != Pause && !d.Droppable() || !r.target.match(d.Actor, d.Kind, e.opts.Pod) {
		return v, false
	}
	if ok, _ := path.Match(r.status.Message, message); !ok && r.status.Message != "" {
		return v, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.status.Over || r.status.Count > 0 && r.status.Acted >= r.status.Count || r.chosen != nil && r.chosen[d.Actor] == 0 {
		return v, false
	}
	key := string(d.Actor) + "\x00" + message
	r.ordinals[key]++
	act, fraction := r.status.choose(e.identity(d.Actor), message, r.ordinals[key])
	if !act {
		return v, false
	}
	if verb == Kill && !r.status.Force && !e.allowKill(d) {
		r.status.Spared++
		return v, false
	}
	if r.chosen != nil {
		r.chosen[d.Actor]--
	}
	r.status.Acted++
	r.status.Actors[d.Actor]++
	done = r.status.Acted == r.status.Count
	if done && verb == Pause { // the end of the rule would end the pause
		done = false
		e.opts.Clock.AfterFunc(r.status.Duration.Duration, func() { go e.end(r) })
	}
	if r.report == nil && e.opts.Report != nil {
		r.report = e.opts.Clock.AfterFunc(reportEvery, func() { go e.reportActed(r) })
	}
	v = supervisors.Verdict{Effect: effects[verb], For: r.status.Duration.Duration, Until: r.over,
		Why: fmt.Sprintf("rule %d, %s", r.status.ID, r.status.Rule)}
	if verb == Reorder {
		v.For = time.Duration(fraction * float64(v.For))
	}
	return v, done
}

// allowKill reports whether the actor's supervisor would restart it after one more kill, and counts that kill.
func (e *Engine) allowKill(d supervisors.Delivery) bool {
	var s supervisors.Strategy
	supervisors.Tree.Walk(func(_ string, r *supervisors.Row) {
		if r.Kind == d.Kind {
			s = r.Strategy
		}
	})
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.opts.Clock.Now()
	maps.DeleteFunc(e.kills, func(_ messages.Address, times []time.Time) bool {
		return len(times) == 0 || now.Sub(times[len(times)-1]) > keepKills
	})
	if d.Actor == messages.Node {
		return true // only a target that names the root matches it
	}
	times := slices.DeleteFunc(e.kills[d.Actor], func(t time.Time) bool { return now.Sub(t) > s.Within })
	allowed := len(times) < s.Panics-1 // one is left for a bug
	if allowed {
		times = append(times, now)
	}
	e.kills[d.Actor] = times
	return allowed
}

// reportActed reports the effects of a rule since the last report.
func (e *Engine) reportActed(r *rule) {
	r.mu.Lock()
	news, text := r.status.Acted-r.reported, r.status.sentence(e.shown)
	r.reported = r.status.Acted
	if r.report != nil {
		r.report.Stop()
		r.report = nil
	}
	r.mu.Unlock()
	if news > 0 && e.opts.Report != nil {
		e.opts.Report(text)
	}
}

// sentence describes the effects of a rule to a reader of Events who may not know of the rule. name returns the name of an actor.
func (s *Status) sentence(name func(messages.Address) string) string {
	actors := slices.Sorted(maps.Keys(s.Actors))
	names := make([]string, 0, len(actors))
	for _, a := range actors[:min(shownActors, len(actors))] {
		names = append(names, name(a))
	}
	if more := len(actors) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	faults, parts := "1 fault", "1 part"
	if s.Acted != 1 {
		faults = fmt.Sprintf("%d faults", s.Acted)
	}
	if len(actors) != 1 {
		parts = fmt.Sprintf("%d parts", len(actors))
	}
	return fmt.Sprintf("playlet chaos injected %s on purpose (rule %d: %s) into %s of the node agent: %s; "+
		"containers keep running", faults, s.ID, s.Rule, parts, strings.Join(names, ", "))
}
