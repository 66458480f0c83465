package runtime

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"pgregory.net/rapid"

	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/cri/facts"
)

func podLabels(uid, container string) map[string]string {
	l := map[string]string{cri.LabelPodUID: uid, cri.LabelPodName: "name-" + uid, cri.LabelPodNamespace: "ns"}
	if container != "" {
		l[cri.LabelContainerName] = container
	}
	return l
}

// A clock that was set back keeps no dead container for years, with or without a minimum age.
func TestChoose_ClockSetBack(t *testing.T) {
	for _, least := range []time.Duration{0, time.Minute} {
		p := DefaultPolicy()
		p.MinAge = least
		have := parse("u/s0+ u/s0/a0x u/s0/a1x") // created a minute after each other
		before := time.Unix(0, 0).Add(-time.Hour)
		if got := written(choose(p, before, have, desiredPods{complete: true, uids: map[string]bool{"u": true}})); got != "u/s0/a0" {
			t.Errorf("minimum age %s: removes %q", least, got)
		}
	}
}

// parse reads holdings written as words. "u/s1-" is sandbox s1 of pod u, attempt 1, not ready ("+": ready). "u/s1/web3x" is
// attempt 3 of container web in it, exited ("r": running, "c": created, "?": unknown). "_u" is the log folder of u. An ID is the
// word without its last letter; newer objects come later.
func parse(text string) existingState {
	var h existingState
	for i, word := range strings.Fields(text) {
		if uid, ok := strings.CutPrefix(word, "_"); ok {
			h.logs = append(h.logs, "ns_name_"+uid)
			continue
		}
		id, state := word[:len(word)-1], word[len(word)-1]
		parts := strings.Split(id, "/")
		attempt := uint32(id[len(id)-1] - '0')
		at := int64(i+1) * int64(time.Minute)
		if len(parts) == 2 {
			s := &runtimeapi.PodSandbox{
				Id: id, Metadata: &runtimeapi.PodSandboxMetadata{Attempt: attempt}, CreatedAt: at,
				Labels: podLabels(parts[0], ""),
				State:  runtimeapi.PodSandboxState_SANDBOX_NOTREADY,
			}
			if state == '+' {
				s.State = runtimeapi.PodSandboxState_SANDBOX_READY
			}
			h.Sandboxes = append(h.Sandboxes, s)
			continue
		}
		h.Containers = append(h.Containers, &runtimeapi.Container{
			Id: id, PodSandboxId: parts[0] + "/" + parts[1], Metadata: &runtimeapi.ContainerMetadata{Attempt: attempt},
			CreatedAt: at, Labels: podLabels(parts[0], parts[2][:len(parts[2])-1]),
			State: map[byte]runtimeapi.ContainerState{
				'x': runtimeapi.ContainerState_CONTAINER_EXITED, 'r': runtimeapi.ContainerState_CONTAINER_RUNNING,
				'c': runtimeapi.ContainerState_CONTAINER_CREATED, '?': runtimeapi.ContainerState_CONTAINER_UNKNOWN,
			}[state],
		})
	}
	return h
}

func written(rs []removal) string {
	var out []string
	for _, r := range rs {
		for _, c := range r.containers {
			out = append(out, c.id)
		}
		out = append(out, r.sandboxes...)
		for _, l := range r.logs {
			out = append(out, strings.TrimPrefix(l, "ns_name"))
		}
	}
	return strings.Join(out, " ")
}

func TestChoose(t *testing.T) {
	standard := DefaultPolicy()
	with := func(per, total int) Policy { return Policy{MaxPerContainer: per, MaxTotal: total} }
	tests := map[string]struct {
		policy   Policy
		have     string
		wanted   string
		notHeard bool
		want     string
	}{
		"the newest dead one stays":        {standard, "u/s0+ u/s0/a0x u/s0/a1x u/s0/a2x", "u", false, "u/s0/a0 u/s0/a1"},
		"beside the one that runs":         {standard, "u/s0+ u/s0/a0x u/s0/a1x u/s0/a2r", "u", false, "u/s0/a0"},
		"each container has its own":       {standard, "u/s0+ u/s0/a0x u/s0/b0x", "u", false, ""},
		"two are kept":                     {with(2, -1), "u/s0+ u/s0/a0x u/s0/a1x u/s0/a2x", "u", false, "u/s0/a0"},
		"all are kept":                     {with(-1, -1), "u/s0+ u/s0/a0x u/s0/a1x u/s0/a2x", "u", false, ""},
		"none is kept":                     {with(0, -1), "u/s0+ u/s0/a0x u/s0/a1x u/s0/a2r", "u", false, "u/s0/a0 u/s0/a1"},
		"the current one that was created": {with(0, -1), "u/s0+ u/s0/a0x u/s0/a1c", "u", false, "u/s0/a0"},
		"an older one that was created":    {standard, "u/s0+ u/s0/a0c u/s0/a1r u/s0/b0x", "u", false, ""},
		"two older, created":               {standard, "u/s0+ u/s0/a0c u/s0/a1c u/s0/a2r", "u", false, "u/s0/a0"},
		"unknown and current":              {with(0, -1), "u/s0+ u/s0/a0?", "u", false, ""},
		"unknown and old":                  {standard, "u/s0+ u/s0/a0? u/s0/a1x u/s0/a2r", "u", false, "u/s0/a0"},
		"nobody knows yet who is wanted":   {standard, "u/s0- u/s1- u/s1/a0x u/s1/a1x _u", "", true, ""},
		"but of a wanted pod":              {standard, "u/s0- u/s1+ u/s1/a0x u/s1/a1x _u", "u", true, "u/s1/a0 u/s0"},
		"gone":                             {standard, "u/s0- u/s0/a0x u/s0/a1x _u", "", false, "u/s0/a0 u/s0/a1 u/s0 _u"},
		"gone, but something runs":         {standard, "u/s0+ u/s0/a0x u/s0/b0r _u", "", false, "u/s0/a0"},
		"gone, but its sandbox is ready":   {standard, "u/s0+ u/s0/a0x _u", "", false, "u/s0/a0"},
		"gone, created or unknown":         {standard, "u/s0- u/s0/a0c u/s0/b0?", "", false, "u/s0/a0 u/s0/b0 u/s0"},
		"gone long ago":                    {standard, "_u", "", false, "_u"},
		"logs of a wanted pod":             {standard, "_u", "u", false, ""},
		"the newest sandbox stays":         {standard, "u/s0- u/s1- u/s2-", "u", false, "u/s0 u/s1"},
		"also when it runs":                {standard, "u/s0- u/s1+", "u", false, "u/s0"},
		"an old sandbox with containers":   {standard, "u/s0- u/s1+ u/s0/a0x u/s1/a1r", "u", false, ""},
		"an old one that becomes empty":    {standard, "u/s0- u/s1+ u/s0/a0x u/s1/a1x", "u", false, "u/s0/a0 u/s0"},
		"an old sandbox that is ready":     {standard, "u/s0+ u/s1+", "u", false, ""},
		"total: an equal share each": {with(-1, 4), "u/s0+ u/s0/a0x u/s0/a1x u/s0/a2x u/s0/a3x u/s0/b0x", "u", false,
			"u/s0/a0 u/s0/a1"},
		"total: then the oldest": {with(-1, 5),
			"u/s0+ u/s0/a0x u/s0/a1x v/s0+ v/s0/a0x v/s0/a1x w/s0+ w/s0/a0x w/s0/a1x", "u v w", false, "u/s0/a0 v/s0/a0 w/s0/a0"},
		"total: the newest are not forgotten":  {with(1, 1), "u/s0+ u/s0/a0x v/s0+ v/s0/a0x", "u v", false, ""},
		"none, but its end is not on disk":     {with(0, -1), "u/s0+ u/s0/a0x u/s0/a1x", "u", false, "u/s0/a0"},
		"total: none, its end is not on disk":  {with(0, 0), "u/s0+ u/s0/a0x u/s0/a1x", "u", false, "u/s0/a0"},
		"total: none, and it is over":          {with(0, 1), "over/s0+ over/s0/a0x", "over", false, "over/s0/a0"},
		"total: what is gone does not count":   {with(-1, 2), "u/s0+ u/s0/a0x u/s0/a1x v/s0/a0x", "u", false, "v/s0/a0"},
		"total: within":                        {with(-1, 2), "u/s0+ u/s0/a0x u/s0/a1x", "u", false, ""},
		"too young":                            {Policy{time.Hour, 0, -1}, "u/s0+ u/s0/a0x u/s0/a1x", "u", false, ""},
		"too young, though gone":               {Policy{time.Hour, 0, -1}, "u/s0- u/s0/a0x _u", "", false, ""},
		"old enough, by the minute it counts":  {Policy{59 * time.Minute, 0, -1}, "u/s0/a0x u/s0/a1x", "u", false, "u/s0/a0"},
		"several pods, in order":               {standard, "v/s0- u/s0- _v _u", "", false, "u/s0 _u v/s0 _v"},
		"an attempt counts more than the time": {standard, "u/s1+ u/s1/a1x u/s1/a0x", "u", false, "u/s1/a0"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := desiredPods{uids: map[string]bool{}, complete: !tc.notHeard, finished: map[string]bool{"over": true}}
			for _, uid := range strings.Fields(tc.wanted) {
				w.uids[uid] = true
			}
			now := time.Unix(0, 0).Add(time.Hour + time.Minute)
			if strings.HasPrefix(name, "old enough") {
				now = now.Add(-time.Minute)
			}
			if got := written(choose(tc.policy, now, parse(tc.have), w)); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestForeignIsNeverChosen(t *testing.T) {
	h := existingState{logs: []string{"lost+found", "a_b", "a_b_c_d", "__", "ns_name_", "u"}}
	h.Sandboxes = append(h.Sandboxes,
		&runtimeapi.PodSandbox{Id: "foreign", Metadata: &runtimeapi.PodSandboxMetadata{Uid: "u"},
			State: runtimeapi.PodSandboxState_SANDBOX_NOTREADY})
	h.Containers = append(h.Containers,
		&runtimeapi.Container{Id: "foreign", State: runtimeapi.ContainerState_CONTAINER_EXITED},
		&runtimeapi.Container{Id: "nameless", Labels: podLabels("u", ""), Metadata: &runtimeapi.ContainerMetadata{},
			State: runtimeapi.ContainerState_CONTAINER_EXITED})
	if got := choose(Policy{}, time.Unix(1<<40, 0), h, desiredPods{complete: true}); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}

// For any holdings and desired pods: running objects stay, current ones of desired pods stay, no object of a pod with unknown
// desire is chosen, and a sandbox is removed after its containers.
func TestChooseKeepsItsPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var words []string
		for i := range rapid.IntRange(0, 10).Draw(t, "things") { // each has a digit of its own
			uid := rapid.SampledFrom([]string{"u", "v", "w"}).Draw(t, "pod")
			s := rapid.IntRange(0, 2).Draw(t, "sandbox")
			switch rapid.IntRange(0, 3).Draw(t, "kind") {
			case 0:
				words = append(words, fmt.Sprintf("%s/s%d%s", uid, s, rapid.SampledFrom([]string{"+", "-"}).Draw(t, "state")))
			case 1:
				words = append(words, "_"+uid)
			default:
				words = append(words, fmt.Sprintf("%s/s%d/%s%d%s", uid, s, rapid.SampledFrom([]string{"a", "b"}).Draw(t, "name"),
					i, rapid.SampledFrom([]string{"x", "x", "r", "c", "?"}).Draw(t, "state")))
			}
		}
		h := parse(strings.Join(words, " "))
		p := Policy{
			MinAge:          time.Duration(rapid.IntRange(0, 5).Draw(t, "age")) * time.Minute,
			MaxPerContainer: rapid.IntRange(-1, 2).Draw(t, "per"), MaxTotal: rapid.IntRange(-1, 3).Draw(t, "total"),
		}
		w := desiredPods{uids: map[string]bool{"u": rapid.Bool().Draw(t, "u"), "v": rapid.Bool().Draw(t, "v")},
			complete: rapid.Bool().Draw(t, "heard"), reclaim: rapid.Bool().Draw(t, "reclaim")}
		w.finished = map[string]bool{"u": w.uids["u"] && rapid.Bool().Draw(t, "over")}
		checkChoice(t, p, h, w, choose(p, time.Unix(0, 0).Add(10*time.Minute), h, w))
	})
}

func checkChoice(t *rapid.T, p Policy, h existingState, w desiredPods, rs []removal) {
	chosen := map[string]bool{}
	for _, r := range rs {
		if w.spared(r.uid) {
			t.Fatalf("%s is neither known to be wanted nor gone", r.uid)
		}
		if len(r.logs) > 0 && !w.undesired(r.uid) {
			t.Fatalf("logs of %s", r.uid)
		}
		for _, c := range r.containers {
			chosen[c.id] = true
		}
		for _, s := range r.sandboxes {
			chosen[s] = true
		}
	}
	for _, c := range h.Containers {
		uid := c.Labels[cri.LabelPodUID]
		if chosen[c.Id] && c.State == runtimeapi.ContainerState_CONTAINER_RUNNING {
			t.Fatalf("%s runs", c.Id)
		}
		if chosen[c.PodSandboxId] && !chosen[c.Id] {
			t.Fatalf("%s goes with %s in it", c.PodSandboxId, c.Id)
		}
		current := instancesOf(facts.Listing{Containers: byUID(h, uid)})[c.Labels[cri.LabelContainerName]][0] == c
		if chosen[c.Id] && current && w.uids[uid] && (!w.finished[uid] || !w.reclaim && p.MaxPerContainer != 0 ||
			c.State != runtimeapi.ContainerState_CONTAINER_EXITED) {
			t.Fatalf("%s is current", c.Id)
		}
	}
}

func byUID(h existingState, uid string) []*runtimeapi.Container {
	return slices.Collect(func(yield func(*runtimeapi.Container) bool) {
		for _, c := range h.Containers {
			if c.Labels[cri.LabelPodUID] == uid && !yield(c) {
				return
			}
		}
	})
}
