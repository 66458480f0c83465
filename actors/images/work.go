package images

import (
	"context"
	_ "crypto/sha256" // verifies digests in image names, like crypto/sha512
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

// errOver means that a pull to join had already ended.
var errOver = errors.New("the pull is over")

// look calls ImageStatus and reads the image's record.
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

// pullKey identifies a pull by the ID of its credentials and its image. It is the key in the table of operations, below
// pullPrefix.
type pullKey struct{ id, name string }

// String returns the key's text, which parseKey parses. No id has a slash.
func (k pullKey) String() string { return pullPrefix + k.id + "/" + k.name }

func parseKey(text string) pullKey {
	id, name, _ := strings.Cut(strings.TrimPrefix(text, pullPrefix), "/")
	return pullKey{id, name}
}

// joinOnly makes pull join a pull in progress, and never begin one.
func joinOnly(context.Context) (string, error) { return "", errOver }

// pull joins the pull in the table of operations, or begins it there with fn. A pull has no deadline while it makes progress.
func (a *images) pull(ctx supervisors.Context, key pullKey, priority int64, fn func(context.Context) (string, error)) {
	if a.began[key].IsZero() {
		a.began[key] = ctx.Now()
	}
	limit := a.opts.PullTimeout
	ctx.Do(supervisors.Work{Name: "PullImage " + key.name, Timeout: limit, Run: func(ctx context.Context) any {
		ctx = cri.WithPriority(ctx, priority)
		ref, err := cri.Run(ctx, a.opts.Operations, key.String(), limit, fn)
		m := pullResult{key: key}
		switch {
		case err != nil && ctx.Err() != nil:
			return pullWaitEnded{key, priority}
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

// size returns the size of a pulled image in bytes; 0 if it is not needed or not known.
func (a *images) size(ctx context.Context, ref string) uint64 {
	if !a.opts.Sizes {
		return 0
	}
	image, _, err := a.opts.Service.ImageStatus(ctx, &runtimeapi.ImageSpec{Image: ref}, false)
	if err != nil {
		return 0 // only an Event uses it
	}
	return image.GetSize()
}

// adopt joins the pulls of a predecessor. They take slots, and pods will ask for their images again.
func (a *images) adopt(ctx supervisors.Context) {
	for _, text := range a.opts.Operations.InFlight(pullPrefix) {
		key := parseKey(text)
		name, err := parseName(key.name)
		if err != nil {
			continue // no need can have this name
		}
		a.machine.adopt(ctx.Now(), key.name, name.registry, key.id)
		a.pull(ctx, key, cri.NodePriority, joinOnly)
	}
	a.carryOut(ctx, a.machine.flush(ctx.Now()))
}

// failure returns the outcome for an error. code is the reason for errors without one of their own.
func failure(err error, code string) outcome {
	text, cause := cri.Message(err), messages.CauseOf(err)
	if r, ok := errors.AsType[*pullError](err); ok {
		err, text = r.last, r.Error()
	}
	switch {
	case cri.IsUnavailable(err), cri.IsNotSent(err), errors.Is(err, cri.ErrOperationsClosed):
		return outcome{result: unreachable, code: messages.ReasonRuntimeUnavailable, msg: text, cause: cause}
	case errors.Is(err, crierrors.ErrRegistryUnavailable) && !inferred(err):
		code = messages.ReasonRegistryUnavailable
	case errors.Is(err, crierrors.ErrSignatureValidationFailed):
		code = crierrors.ErrSignatureValidationFailed.Error()
	}
	return outcome{result: failed, code: code, msg: text, cause: cause}
}

// inferred reports whether the runtime did not report the reason of an error by its name. The kubelet would not know the reason.
func inferred(err error) bool {
	e, ok := errors.AsType[*cri.CallError](err)
	return ok && e.Inferred
}

// imageName is a parsed image name.
type imageName struct {
	// runtime is the name for the runtime: the name in the pod, with ":latest" if that has neither tag nor digest. docker.io is
	// not added, since a runtime may resolve short names to another registry.
	runtime string
	// registry and repository are used for credentials and the queue: short names are taken as docker.io's.
	registry, repository string
}

// parseName parses the name of an image in a pod.
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
