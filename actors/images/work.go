package images

import (
	"context"
	_ "crypto/sha256" // digests in image names are verified by these
	_ "crypto/sha512"
	"errors"
	"strings"

	"github.com/distribution/reference"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	crierrors "k8s.io/cri-api/pkg/errors"

	"github.com/playlet-dev/playlet/actors/images/pullrecord"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// errOver says that a pull that was to be joined had ended before.
var errOver = errors.New("the pull is over")

// look asks whether the image is there.
func look(ctx context.Context, service Service, records *pullrecord.Records, name string) outcome {
	image, _, err := service.ImageStatus(ctx, &runtimeapi.ImageSpec{Image: name}, false)
	switch {
	case err == nil && image == nil:
		return outcome{result: absent}
	case err == nil:
		return outcome{result: present, ref: image.GetId(), record: records.Read(name, image.GetId())}
	default:
		return failure(err, messages.ReasonImageInspectError)
	}
}

// pullKey names one pull: its keys, by what tells them apart, and its image. It is that of the table of operations, below
// pullPrefix.
type pullKey struct{ id, name string }

// String and parseKey are each other's opposite; no id has a slash.
func (k pullKey) String() string { return pullPrefix + k.id + "/" + k.name }

func parseKey(text string) pullKey {
	id, name, _ := strings.Cut(strings.TrimPrefix(text, pullPrefix), "/")
	return pullKey{id, name}
}

// joinOnly is for a pull that is joined where it is in progress, and not begun.
func joinOnly(context.Context) (string, error) { return "", errOver }

// pull joins the pull in the table of operations, or begins it there by doing fn. A pull has no deadline while it progresses.
func (a *images) pull(ctx supervisors.Context, key pullKey, priority int64, fn func(context.Context) (string, error)) {
	if a.began[key].IsZero() {
		a.began[key] = ctx.Now()
	}
	limit := a.opts.PullTimeout
	ctx.Do(supervisors.Work{Name: "PullImage " + key.name, Timeout: limit, Run: func(ctx context.Context) any {
		ctx = cri.WithPriority(ctx, priority)
		ref, err := cri.Run(ctx, a.opts.Operations, key.String(), limit, fn)
		m := pulled{key: key}
		switch {
		case err != nil && ctx.Err() != nil:
			return pullGoesOn{key, priority}
		case err == nil:
			m.outcome = outcome{result: present, ref: ref, size: a.size(ctx, ref)}
		case errors.Is(err, errOver):
			m.outcome = outcome{result: absent}
		default:
			m.outcome = failure(err, messages.ReasonErrImagePull)
		}
		return m
	}})
}

// size is how large an image is that was just pulled, in bytes; 0 where that is not asked or not known.
func (a *images) size(ctx context.Context, ref string) uint64 {
	if !a.opts.Sizes {
		return 0
	}
	image, _, err := a.opts.Service.ImageStatus(ctx, &runtimeapi.ImageSpec{Image: ref}, false)
	if err != nil {
		return 0 // it is for an event alone
	}
	return image.GetSize()
}

// adopt joins the pulls that a predecessor began: they take slots, and somebody will ask for them again.
func (a *images) adopt(ctx supervisors.Context) {
	for _, text := range a.opts.Operations.InFlight(pullPrefix) {
		key := parseKey(text)
		name, err := parseName(key.name)
		if err != nil {
			continue // nobody can ask for it
		}
		a.machine.adopt(ctx.Now(), key.name, name.registry, key.id)
		a.pull(ctx, key, cri.NodePriority, joinOnly)
	}
	a.carryOut(ctx, a.machine.flush(ctx.Now()))
}

// failure is the outcome for an error: code is the reason where the error has none of its own.
func failure(err error, code string) outcome {
	text, cause := cri.Message(err), messages.CauseOf(err)
	if r, ok := errors.AsType[*refused](err); ok {
		err, text = r.last, r.Error()
	}
	switch {
	case cri.IsUnavailable(err), cri.IsNotSent(err), errors.Is(err, cri.ErrOperationsClosed):
		return outcome{result: unreachable, code: messages.ReasonRuntimeUnavailable, msg: text, cause: cause}
	case errors.Is(err, crierrors.ErrRegistryUnavailable):
		code = messages.ReasonRegistryUnavailable
	case errors.Is(err, crierrors.ErrSignatureValidationFailed):
		code = crierrors.ErrSignatureValidationFailed.Error()
	}
	return outcome{result: failed, code: code, msg: text, cause: cause}
}

// imageName is the name of an image, taken apart.
type imageName struct {
	// runtime is the image as it is given to the runtime: as the pod's author wrote it and, where that has neither tag nor
	// digest, with ":latest". It is not made to point to docker.io, since a runtime may have its own idea of where short
	// names come from.
	runtime string
	// registry and repository are where credentials and the queue take it to be: short names are docker.io's.
	registry, repository string
}

// parseName's error says what is wrong with the name.
func parseName(image string) (imageName, error) {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return imageName{}, err
	}
	n := imageName{runtime: image, registry: reference.Domain(named), repository: named.Name()}
	if reference.IsNameOnly(named) && !strings.HasSuffix(image, ":latest") {
		n.runtime += ":latest"
	}
	return n, nil
}
