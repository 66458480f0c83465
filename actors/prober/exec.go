package prober

import (
	"context"
	"fmt"

	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/cri/translate"
)

// execProbe runs a command in the container; exit code 0 is success. The runtime enforces the timeout, from its receipt of
// the request. Only the runtime's answer counts: without one, the result is unknown.
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
