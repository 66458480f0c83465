package agent

import (
	"errors"
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/watch"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// A fake watch with a full channel panics in the client's write, after the object was stored: the watch loses it for good, as
	// no API server does. A hundred, the default, are too few for waves of pods on a busy machine.
	watch.DefaultChanSize = 1 << 14
	// Else the first test that runs an agent as the command does has garbage collected twice as often in all that come after it.
	if err := errors.Join(manyAtOnce(), os.Setenv("GOGC", "100")); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// manyAtOnce runs sixteen parallel tests at a time, unless -parallel sets a number. The days of chaos mostly wait for deadlines
// and periods, and two at a time leave two cores idle.
func manyAtOnce() error {
	said := false
	flag.Visit(func(f *flag.Flag) { said = said || f.Name == "test.parallel" })
	if said {
		return nil
	}
	return flag.Set("test.parallel", "16")
}
