package main

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
)

const (
	agent = "./cmd/playlet/agent" // its tests run whole agents, and wait for deadlines most of their time
	kills = "^TestEveryActorKilledAtEveryMessage$"
)

// unit runs all tests but the end-to-end ones with the race detector. Those of the agent, which take the longest, wait in two
// lanes, and what they leave of the cores compiles and runs the others. Nothing else may keep them from a core: they look at
// their clocks while they wait, and would take twice the CPU altogether. So no more than twelve run at once in a lane, and the
// others are run with the least priority.
func unit(ctx context.Context, out io.Writer) (tally, error) {
	list, err := output(ctx, withRace, "go", "list", "./...", "./.ci/check", "./.ci/package")
	if err != nil {
		return tally{}, err
	}
	others := slices.DeleteFunc(strings.Fields(list), func(pkg string) bool { return strings.HasSuffix(pkg, agent[1:]) })
	test := []string{"go", "test", "-json", "-race", "-vet=off", "-timeout=45m", "-parallel=12"}
	lane := func(args ...string) func(context.Context, io.Writer) (tally, error) {
		return goTest(withRace, false, slices.Concat(test, args)...)
	}
	rest := goTest(withRace, false, slices.Concat([]string{"nice", "-n", "19"}, test, others)...)
	// Without any test first, as lanes that begin together would each compile what all of them need.
	if t, err := lane("-run=^$", agent)(ctx, out); err != nil || t.failed > 0 {
		more, err2 := rest(ctx, out)
		t.add(more)
		return t, errors.Join(err, err2)
	}
	return sideBySide(ctx, out, lane("-run="+kills, agent), lane("-skip="+kills, agent), rest)
}
