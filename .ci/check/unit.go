package main

import (
	"context"
	"io"
	"slices"
	"strings"
)

const (
	agent = "./cmd/playlet/agent" // its tests run whole agents, and wait for deadlines most of their time
	kills = "^TestEveryActorKilledAtEveryMessage$"
	days  = "^(TestEveryCallFailsOnce|Test.*WhereActorsFall)$"
)

// unit runs all tests but the end-to-end ones with the race detector. Those of the agent, which take the longest, wait in three
// lanes, and what they leave of the cores compiles and runs the others meanwhile.
func unit(ctx context.Context, out io.Writer) (tally, error) {
	list, err := output(ctx, withRace, "go", "list", "./...", "./.ci/check", "./.ci/package")
	if err != nil {
		return tally{}, err
	}
	others := slices.DeleteFunc(strings.Fields(list), func(pkg string) bool { return strings.HasSuffix(pkg, agent[1:]) })
	test := func(args ...string) func(context.Context, io.Writer) (tally, error) {
		return goTest(withRace, false, append([]string{"-race", "-vet=off", "-timeout=45m"}, args...)...)
	}
	// Without any test first, as lanes that begin together would each compile what all of them need.
	if t, err := test("-run=^$", agent)(ctx, out); err != nil || t.failed > 0 {
		return t, err
	}
	// Eight side by side: where many more run at once they wait for the cores, look at their clocks meanwhile, and take twice the
	// CPU altogether.
	return sideBySide(ctx, out, test("-parallel=8", "-run="+kills, agent), test("-parallel=8", "-run="+days, agent),
		test("-parallel=8", "-skip="+kills+"|"+days, agent), test(others...))
}
