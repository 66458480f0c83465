package images

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	crierrors "k8s.io/cri-api/pkg/errors"

	"github.com/playlet-dev/playlet/actors/images/provider"
	"github.com/playlet-dev/playlet/actors/images/pullauth"
	"github.com/playlet-dev/playlet/actors/internal/objectset"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/cri/stall"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// credentialsOf returns the credentials in a pod's pull secrets for a repository, with the pod if a plugin requires its service
// account. Like the kubelet, it skips a Secret that is missing or has the wrong type. The error of a failed pull names it.
func (a *images) credentialsOf(pod *v1.Pod, repository string) credentials {
	if pod == nil {
		return credentials{}
	}
	var rings []*pullauth.Keyring
	k := credentials{pod: a.holder(pod, repository)}
	for _, ref := range pod.Spec.ImagePullSecrets {
		if ref.Name == "" {
			continue
		}
		secret, found, err := a.opts.Objects.Secret(pod, ref.Name)
		k.unread = k.unread || objectset.IsUnread(err)
		if err == nil && !found {
			err = errors.New("does not exist")
			k.unfound = append(k.unfound, ref.Name)
		}
		if err == nil {
			var ring *pullauth.Keyring
			ring, err = pullauth.OfSecret(secret)
			rings = append(rings, ring)
		}
		if err != nil {
			k.note += fmt.Sprintf("; of imagePullSecrets, Secret %s/%s %v", pod.Namespace, ref.Name, err)
		}
	}
	k.list = pullauth.Join(rings...).Lookup(repository)
	k.id = pullauth.Fingerprint(a.secret, k.list)
	if k.pod != nil { // a plugin's answer may be valid for this pod alone
		k.id += "@" + string(pod.UID)
	}
	return k
}

// holder returns the pod if a credential provider requires its service account for this repository, and otherwise nil. Only a
// pod from the API server has a service account there.
func (a *images) holder(pod *v1.Pod, repository string) *v1.Pod {
	if a.opts.Accounts == nil || pod.Spec.ServiceAccountName == "" || !objectset.OfAPIServer(pod) ||
		!a.opts.Providers.ByAccount(repository) {
		return nil
	}
	return pod
}

// provided returns the credentials of credential providers for a repository.
func (a *images) provided(ctx context.Context, repository string, k credentials) ([]*pullauth.Credential, []error) {
	return a.opts.Providers.Credentials(ctx, provider.Question{Repository: repository, Pod: k.pod, Accounts: a.opts.Accounts})
}

// tellUnfound records an Event, with the kubelet's text, about a pod's pull secrets that do not exist. It repeats the Event only
// if the set of missing ones changes.
func (a *images) tellUnfound(ctx supervisors.Context, pod *v1.Pod, k credentials) {
	if pod == nil || k.unread {
		return
	}
	uid, names := string(pod.UID), strings.Join(slices.Compact(slices.Sorted(slices.Values(k.unfound))), ", ")
	if names == a.unfound[uid] {
		return
	}
	if names == "" {
		delete(a.unfound, uid)
		return
	}
	a.unfound[uid] = names
	ctx.Tell(messages.Events, messages.PodEvent(pod, "", v1.EventTypeWarning, messages.EventFailedPullSecret,
		"Unable to retrieve some image pull secrets ("+names+"); attempting to pull the image may not succeed.", ctx.Now()))
}

// pullWith pulls with one credential after another until it succeeds: the pod's, the node's docker configuration, the credential
// providers', and none.
func (a *images) pullWith(ctx context.Context, log *slog.Logger, name imageName, k credentials) (string, error) {
	if err := a.opts.Records.Begin(name.runtime); err != nil {
		return "", err
	}
	failed := &pullError{}
	ref, with, err := a.tryAll(ctx, name, k, failed)
	if err == nil {
		a.recordPull(ctx, log, name, ref, with)
		return ref, nil
	}
	// After an interrupted call the runtime may have the image. A runtime that answered, with any error, has ended the pull.
	if err := a.opts.Records.Failed(name.runtime, cri.IsAnswered(failed.last) || cri.IsNotSent(failed.last)); err != nil {
		log.Warn("could not remove the record of a failed image pull", "image", name.runtime, "error", err)
	}
	return "", failed
}

// tryAll tries one credential after another, and returns the accepted one; nil if the pull succeeded without. It reads each
// source of credentials only when it is needed.
func (a *images) tryAll(
	ctx context.Context, name imageName, k credentials, failed *pullError,
) (ref string, with *pullauth.Credential, err error) {
	var shown []*pullauth.Credential
	for _, next := range []func() ([]*pullauth.Credential, []error){
		func() ([]*pullauth.Credential, []error) { return k.list, nil },
		func() ([]*pullauth.Credential, []error) {
			node, problems := pullauth.OfFiles(a.opts.AuthFiles)
			for i, p := range problems {
				problems[i] = fmt.Errorf("the node's docker configuration: %w", p)
			}
			return node.Lookup(name.repository), problems
		},
		func() ([]*pullauth.Credential, []error) { return a.provided(ctx, name.repository, k) },
		func() ([]*pullauth.Credential, []error) { return []*pullauth.Credential{nil}, nil },
	} {
		more, problems := next()
		failed.problems = append(failed.problems, problems...)
		for _, c := range more {
			var auth *runtimeapi.AuthConfig
			if c != nil {
				if slices.ContainsFunc(shown, c.Same) {
					continue
				}
				auth, shown = c.Auth(), append(shown, c)
			}
			ref, err = a.pullImage(ctx, &runtimeapi.ImageSpec{Image: name.runtime}, auth)
			if err == nil {
				return ref, c, nil
			}
			failed.last = err
			if failed.cause.Code != messages.CauseUnauthorized { // that cause is kept: another credential may help
				failed.cause.Code = messages.CauseOf(err).Code
			}
			failed.add(c, pullauth.Hide(cri.Message(err), shown), len(shown) > 0)
			if !authorizes(ctx, err) {
				return "", nil, err
			}
		}
	}
	return "", nil, err
}

// pullImage pulls an image. The CRI reports no progress of a pull, so each answer of the runtime during it counts as progress.
func (a *images) pullImage(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig) (string, error) {
	asking, end := context.WithCancel(cri.WithoutSlot(ctx))
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(a.opts.PullTimeout / 60)
		defer tick.Stop()
		for {
			select {
			case <-asking.Done():
				return
			case <-tick.C:
				if _, _, err := a.opts.Service.ImageStatus(asking, image, false); err == nil {
					stall.Progress(ctx, nil)
				}
			}
		}
	})
	defer running.Wait()
	defer end()
	return a.opts.Service.PullImage(ctx, image, auth, nil)
}

// recordPull records the credential of a pull, before any pod gets the answer. If that fails, the image counts as pulled with
// unknown credentials, and every other pod pulls again.
func (a *images) recordPull(
	ctx context.Context, log *slog.Logger, name imageName, ref string, with *pullauth.Credential,
) {
	if a.opts.Records == nil {
		return
	}
	// Looks use the runtime's ID of the image. The result of a pull may be another name.
	image, _, err := a.opts.Service.ImageStatus(ctx, &runtimeapi.ImageSpec{Image: ref}, false)
	if err != nil { // no look would find a record under another name, and the image would be open to all pods
		log.Warn("could not inspect a pulled image; the next pod that uses it pulls again", "image", name.runtime,
			"error", err)
		if err := a.opts.Records.Failed(name.runtime, false); err != nil {
			log.Warn("could not write the record of an image pull with unknown credentials", "image", name.runtime, "error", err)
		}
		return
	}
	if id := image.GetId(); id != "" {
		ref = id
	}
	if err := a.opts.Records.Pulled(name.runtime, ref, with, time.Now()); err != nil {
		log.Warn("could not write the record of an image pull", "image", name.runtime, "error", err)
	}
}

// authorizes reports whether other credentials may help. They cannot if the runtime or the registry is unreachable.
func authorizes(ctx context.Context, err error) bool {
	return ctx.Err() == nil && cri.IsAnswered(err) && !cri.IsUnavailable(err) && !cri.IsTimeout(err) &&
		!errors.Is(err, crierrors.ErrRegistryUnavailable) && !errors.Is(err, crierrors.ErrSignatureValidationFailed)
}

// pullError is the error of a pull that failed, once or with each credential. Its text contains no credentials.
type pullError struct {
	said     []string
	problems []error // of the node's docker configuration and of credential providers
	last     error   // of the runtime; it may contain credentials
	cause    messages.Cause
}

func (r *pullError) add(c *pullauth.Credential, text string, several bool) {
	switch {
	case c != nil:
		text = fmt.Sprintf("with the %s: %s", c, text)
	case several:
		text = "without credentials: " + text
	}
	r.said = append(r.said, text)
}

// Cause implements messages.CauseError.
func (r *pullError) Cause() messages.Cause { return r.cause }

func (r *pullError) Error() string {
	text := strings.Join(r.said, "; ")
	for _, p := range r.problems {
		text += "; " + p.Error()
	}
	return text
}

// AuthFiles returns the paths at which a kubelet with this root directory looks for the node's docker configuration.
func AuthFiles(rootDir string) []string { return pullauth.Files(rootDir) }

// unreadTimeout limits how long a need waits for pull secrets that have not been read yet. Without the wait, a pull would fail
// that succeeds a moment later.
const unreadTimeout = time.Second

// heldNeed is a need whose pull secrets have not been read yet.
type heldNeed struct {
	ask  messages.PullImage
	late bool // the wait has timed out
}

// holdTimeout is the end of the wait for a need's pull secrets.
type holdTimeout struct{ key messages.ImageKey }

func (h holdTimeout) PodUID() string { return h.key.UID }

// hold keeps the need until its pull secrets are read, and reports whether it still waits.
func (a *images) hold(ctx supervisors.Context, m messages.PullImage) bool {
	h := a.held[m.Key]
	if h == nil {
		h = &heldNeed{}
		a.held[m.Key] = h
		ctx.After(unreadTimeout, holdTimeout{m.Key})
	}
	h.ask = m
	return !h.late
}

// askHeld handles the waiting needs again, in case their pull secrets have been read.
func (a *images) askHeld(ctx supervisors.Context) {
	for _, h := range maps.Clone(a.held) {
		a.handlePullImage(ctx, h.ask)
	}
}

func (a *images) release(ctx supervisors.Context, m holdTimeout) {
	if h := a.held[m.key]; h != nil {
		h.late = true
		a.handlePullImage(ctx, h.ask)
	}
}

// drop removes all state of a pod outside the machine.
func (a *images) drop(uid string) {
	delete(a.unfound, uid)
	a.gc.forget(uid)
	maps.DeleteFunc(a.held, func(k messages.ImageKey, _ *heldNeed) bool { return k.UID == uid })
}
