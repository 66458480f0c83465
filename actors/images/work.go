package images

import (
	"context"
	"errors"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	crierrors "k8s.io/cri-api/pkg/errors"

	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// errOver says that a pull that was to be joined had ended before.
var errOver = errors.New("the pull is over")

// look asks whether the image is there.
func look(ctx context.Context, service Service, name string) outcome {
	image, _, err := service.ImageStatus(ctx, &runtimeapi.ImageSpec{Image: name}, false)
	switch {
	case err == nil && image == nil:
		return outcome{result: absent}
	case err == nil:
		return outcome{result: present, ref: image.GetId()}
	default:
		return failure(err, messages.ReasonImageInspectError)
	}
}

// pull joins the pull of the image in the table of operations, or begins it there by doing fn.
func (a *images) pull(ctx supervisors.Context, name string, priority int64, fn func(context.Context) (string, error)) {
	a.began[name] = ctx.Now()
	limit := a.opts.PullTimeout
	ctx.Do(supervisors.Work{Name: "PullImage " + name, Timeout: limit + time.Minute, Run: func(ctx context.Context) any {
		ctx = cri.WithPriority(ctx, priority)
		ref, err := cri.Run(ctx, a.opts.Operations, pullPrefix+name, limit, fn)
		m := pulled{name: name}
		switch {
		case err == nil:
			m.outcome = outcome{result: present, ref: ref}
		case errors.Is(err, errOver):
			m.outcome = outcome{result: absent}
		default:
			m.outcome = failure(err, messages.ReasonErrImagePull)
		}
		return m
	}})
}

// adopt joins the pulls that a predecessor began: they take slots, and somebody will ask for them again.
func (a *images) adopt(ctx supervisors.Context) {
	for _, key := range a.opts.Operations.InFlight(pullPrefix) {
		name := strings.TrimPrefix(key, pullPrefix)
		a.book.adopt(name)
		a.pull(ctx, name, cri.NodePriority, func(context.Context) (string, error) { return "", errOver })
	}
}

// failure is the outcome for an error: code is the reason where the error has none of its own.
func failure(err error, code string) outcome {
	switch {
	case cri.IsUnavailable(err), cri.IsNotSent(err), errors.Is(err, cri.ErrOperationsClosed):
		return outcome{result: unreachable, code: messages.ReasonRuntimeUnavailable, msg: err.Error()}
	case errors.Is(err, crierrors.ErrRegistryUnavailable):
		code = messages.ReasonRegistryUnavailable
	case errors.Is(err, crierrors.ErrSignatureValidationFailed):
		code = crierrors.ErrSignatureValidationFailed.Error()
	}
	return outcome{result: failed, code: code, msg: cri.Message(err)}
}
