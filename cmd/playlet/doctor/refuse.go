package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/pflag"

	"github.com/playlet-dev/playlet/actors/resources"
	"github.com/playlet-dev/playlet/cmd/playlet/cli"
	"github.com/playlet-dev/playlet/config"
)

// settledChecks find what no later start of the machine, the runtime or its network mends by itself. One bad manifest keeps no
// agent from the others.
var settledChecks = []string{"configuration", "cgroups", "cgroup-driver", "kernel"}

// Refuse is the error of a configuration file that an agent could not work with on this machine; it names all that is wrong, and
// what to do.
func Refuse(ctx context.Context, file string) error {
	fs := pflag.NewFlagSet("playlet", pflag.ContinueOnError)
	flags := config.AddFlags(fs)
	if err := fs.Parse([]string{"--config=" + file}); err != nil {
		return err
	}
	node, warnings, err := config.Load(flags, fs)
	if err != nil {
		return fmt.Errorf("the agent would not start with it: %w", err)
	}
	return refusal(ctx, machineOf(node, warnings))
}

func refusal(ctx context.Context, m *Machine) error {
	checks := slices.DeleteFunc(slices.Clone(Checks), func(c Check) bool { return !slices.Contains(settledChecks, c.Name) })
	var errs []error
	for _, f := range Run(ctx, m, checks, nil) {
		if f.Result == Fail {
			errs = append(errs, fmt.Errorf("%s: %s (%s)", f.Check, cli.Plain(f.Seen), f.Do))
		}
	}
	swaps, err := resources.Swaps(m.Proc)
	if err == nil {
		err = m.Node.CheckSwap(swaps)
	}
	return errors.Join(append(errs, err)...)
}
