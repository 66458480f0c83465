package pod

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

// stormy is the default number of storms for a machine. The rarest mistakes found so far took tens of thousands; `task soak` runs
// as many.
const stormy = "2000"

func TestMain(m *testing.M) {
	flag.Parse()
	asked := false
	flag.Visit(func(f *flag.Flag) { asked = asked || f.Name == "rapid.checks" })
	if !asked {
		if err := flag.Set("rapid.checks", stormy); err != nil {
			panic(err)
		}
	}
	goleak.VerifyTestMain(m)
}
