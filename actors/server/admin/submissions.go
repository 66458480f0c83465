package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/playlet-dev/playlet/actors/internal/manifest"
	"github.com/playlet-dev/playlet/actors/internal/shares"
	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/messages"
)

const (
	submissionsPath = "/v1/submissions"
	// maxManifestBytes is the maximum size of a manifest, as for a file.
	maxManifestBytes = manifest.MaxBytes
	// submitTimeout bounds an acceptance, which waits for the disk. It is shorter than the client's.
	submitTimeout = 12 * time.Second
	// readTimeout bounds the reading of a manifest.
	readTimeout = 30 * time.Second
	// maxSubmissions limits the manifests in memory, and maxWaiting the waiting requests; both shared by client.
	maxSubmissions, maxWaiting = 16, 256
)

func newSubmissions() *shares.Limit {
	return shares.NewQueue("submissions", maxSubmissions, maxWaiting)
}

// refusals maps rejections to HTTP statuses.
var refusals = map[messages.Refusal]int{
	messages.RefusedMalformed: http.StatusBadRequest,
	messages.RefusedInvalid:   http.StatusUnprocessableEntity,
	messages.RefusedConflict:  http.StatusConflict,
	messages.RefusedUnknown:   http.StatusNotFound,
	messages.RefusedNoSpace:   http.StatusInsufficientStorage,
	messages.RefusedFailure:   http.StatusInternalServerError,
}

// Manifests serves submissions on the node's API, at /manifests, with the handlers of the admin socket's /v1/submissions. Each
// method is a separate right and has one effect: POST creates and replaces nothing, PUT replaces an existing submission, DELETE
// withdraws it. It only needs the tree of the configuration.
func Manifests(conf Config) http.Handler {
	h := &handlers{conf: conf, manifests: newSubmissions()}
	answers := inJSON(http.NewServeMux(), "/manifests", map[string]handler{
		"GET /manifests": h.submissions,
		"POST /manifests": func(w http.ResponseWriter, r *http.Request) error {
			return h.accept(w, r, messages.SubmitPods{})
		},
		"GET /manifests/{namespace}/{name}": h.submission,
		"PUT /manifests/{namespace}/{name}": h.replace,
		"DELETE /manifests/{namespace}/{name}": func(w http.ResponseWriter, r *http.Request) error {
			return h.withdrawOne(w, r, true)
		},
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("dryRun") { // a dry run must not be executed
			fail(w, refuse(http.StatusBadRequest, "dryRun is not taken at /manifests; nothing was done"))
			return
		}
		answers.ServeHTTP(w, r)
	})
}

// submissions answers GET /v1/submissions.
func (h *handlers) submissions(w http.ResponseWriter, r *http.Request) error {
	found, err := askSubmit[messages.SubmissionsReported](h, r, messages.GetSubmissions{})
	if err != nil {
		return err
	}
	return answer(w, api.Submissions{Submissions: found.Submissions})
}

// objects answers GET /v1/objects with the submitted ConfigMaps and Secrets.
func (h *handlers) objects(w http.ResponseWriter, r *http.Request) error {
	found, err := askSubmit[messages.SubmittedObjectsReported](h, r, messages.GetSubmittedObjects{})
	if err != nil {
		return err
	}
	return answer(w, api.SubmittedObjects{Objects: found.Objects})
}

// submission answers GET /v1/submissions/{namespace}/{name}.
func (h *handlers) submission(w http.ResponseWriter, r *http.Request) error {
	found, err := h.named(r)
	if err != nil {
		return err
	}
	return answer(w, found)
}

// named returns the submission named by a request.
func (h *handlers) named(r *http.Request) (messages.Submission, error) {
	question := messages.GetSubmissions{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")}
	found, err := askSubmit[messages.SubmissionsReported](h, r, question)
	if err != nil {
		return messages.Submission{}, err
	}
	return found.Submissions[0], nil
}

// submit answers POST /v1/submissions[?replace=true][&dryRun=true]: a manifest of pods, ConfigMaps and Secrets.
func (h *handlers) submit(w http.ResponseWriter, r *http.Request) error {
	var m messages.SubmitPods
	if err := params(r, api.Params{"replace": &m.Replace, "dryRun": &m.DryRun}); err != nil {
		return err
	}
	return h.accept(w, r, m)
}

// submitOne answers PUT /v1/submissions/{namespace}/{name}: the new manifest of that pod.
func (h *handlers) submitOne(w http.ResponseWriter, r *http.Request) error {
	return h.accept(w, r, messages.SubmitPods{Namespace: r.PathValue("namespace"), Name: r.PathValue("name"), Replace: true})
}

// accept reads a manifest and passes it on.
func (h *handlers) accept(w http.ResponseWriter, r *http.Request, m messages.SubmitPods) error {
	release, err := h.turn(r)
	if err != nil {
		return err
	}
	defer release()
	if m.Manifest, err = readManifest(w, r); err != nil {
		return err
	}
	return h.hand(w, r, m)
}

// turn waits until a manifest may be read into memory.
func (h *handlers) turn(r *http.Request) (release func(), err error) {
	ctx, cancel := context.WithTimeout(r.Context(), submitTimeout)
	defer cancel()
	if release, err = h.manifests.Wait(ctx, shares.Client(r)); err != nil {
		return nil, refuse(http.StatusTooManyRequests, "%v", err)
	}
	return release, nil
}

// replace answers PUT /manifests/{namespace}/{name}: the right to update is not the right to create. It reads the manifest before
// it answers: a client that still sends would not see the answer.
func (h *handlers) replace(w http.ResponseWriter, r *http.Request) error {
	release, err := h.turn(r)
	if err != nil {
		return err
	}
	defer release()
	text, err := readManifest(w, r)
	if err != nil {
		return err
	}
	found, err := h.named(r)
	if err != nil {
		return err
	}
	// The name may be the pod's; the manifest has another name, under which a new pod would be created.
	return h.hand(w, r, messages.SubmitPods{Manifest: text, Namespace: r.PathValue("namespace"), Name: found.Name, Replace: true})
}

// hand sends a manifest to the actor, and answers with the result.
func (h *handlers) hand(w http.ResponseWriter, r *http.Request, m messages.SubmitPods) error {
	submitted, err := askSubmit[messages.PodsSubmitted](h, r, m)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if slices.ContainsFunc(submitted.Pods, func(p messages.SubmittedPod) bool {
		return p.Change == messages.PodCreated && !m.DryRun
	}) {
		status = http.StatusCreated
	}
	write(w, status, api.SubmitReply{Pods: submitted.Pods})
	return nil
}

func readManifest(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(readTimeout)) // not supported by a test's recorder
	data, err := io.ReadAll(r.Body)
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, refuse(http.StatusRequestEntityTooLarge, "the manifest is larger than the %d MiB that it may have",
			large.Limit>>20)
	case err != nil:
		return nil, bad(fmt.Errorf("the manifest was received incompletely: %w", err))
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	return data, nil
}

// withdraw answers DELETE /v1/submissions/{namespace}/{name}[?kind=ConfigMap][?grace=SECONDS][?exact=true][?dryRun=true].
func (h *handlers) withdraw(w http.ResponseWriter, r *http.Request) error {
	return h.withdrawOne(w, r, false)
}

func (h *handlers) withdrawOne(w http.ResponseWriter, r *http.Request, exact bool) error {
	question := messages.WithdrawPod{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")}
	if err := params(r, api.Params{
		"kind": &question.Kind, "grace": &question.Grace, "exact": &question.Exact, "dryRun": &question.DryRun,
	}); err != nil {
		return err
	}
	question.Exact = question.Exact || exact
	if !slices.Contains([]string{"", "ConfigMap", "Secret"}, question.Kind) {
		return bad(fmt.Errorf("kind=%q is none that can be submitted", question.Kind))
	}
	gone, err := askSubmit[messages.PodWithdrawn](h, r, question)
	if err != nil {
		return err
	}
	return answer(w, api.SubmitReply{Pods: []messages.SubmittedPod{gone.Pod}})
}

// askSubmit sends a question to the submit actor. Without an answer it is unknown whether it was executed.
func askSubmit[T any](h *handlers, r *http.Request, question any) (T, error) {
	return ask[T](h, r, submitTimeout, messages.Submit, question)
}
