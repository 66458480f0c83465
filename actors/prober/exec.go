package prober

import (
	"context"
	"fmt"

	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/cri/translate"
)

// execProbe runs a command in the container: exit code 0 is success. Its time is the runtime's to keep, from when it has it.
// Only what the runtime itself says counts against the application: a runtime that gives no answer does not.
func execProbe(ctx context.Context, opts Options, j job) outcome {
	r, err := opts.CRI.ExecSync(ctx, j.id, translate.ExpandCommand(j.spec.Exec.Command, j.container.Env), j.timeout)
	switch {
	case err != nil && cri.IsTimeout(err) && cri.IsAnswered(err):
		return outcome{result: failure, message: fmt.Sprintf("command timed out after %s", j.timeout), timedOut: true}
	case err != nil:
		return outcome{result: unknown, message: err.Error(), timedOut: cri.IsTimeout(err)}
	case r.ExitCode != 0:
		said := text(head(r.Stdout), head(r.Stderr))
		if said == "" {
			said = fmt.Sprintf("command ended with code %d", r.ExitCode)
		}
		return outcome{result: failure, message: said}
	}
	return outcome{result: success, message: text(head(r.Stdout))}
}
