package admin

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/playlet-dev/playlet/actors/internal/manifest"
	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/messages"
)

const (
	submissionsPath = "/v1/submissions"
	// maxManifestBytes is as much as a manifest in a file may have.
	maxManifestBytes = manifest.MaxBytes
	// submitTimeout bounds an acceptance, which waits for the disk. It is shorter than the client's.
	submitTimeout = 12 * time.Second
	// readTimeout bounds the reading of a manifest.
	readTimeout = 30 * time.Second
)

// refusals are the HTTP statuses of refusals.
var refusals = map[messages.Refusal]int{
	messages.RefusedMalformed: http.StatusBadRequest,
	messages.RefusedInvalid:   http.StatusUnprocessableEntity,
	messages.RefusedConflict:  http.StatusConflict,
	messages.RefusedUnknown:   http.StatusNotFound,
	messages.RefusedNoSpace:   http.StatusInsufficientStorage,
	messages.RefusedFailure:   http.StatusInternalServerError,
}

// Manifests are the submissions on the node's API, at /manifests: what the admin socket answers at /v1/submissions, by the same
// handlers. There each method is a right of its own, and so does one thing: POST creates and replaces nothing, PUT replaces a
// submission that is there, DELETE withdraws it. Of the configuration it needs the tree.
func Manifests(conf Config) http.Handler {
	h := &handlers{conf: conf}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /manifests", h.submissions)
	mux.HandleFunc("POST /manifests", func(w http.ResponseWriter, r *http.Request) { h.accept(w, r, messages.SubmitPods{}) })
	mux.HandleFunc("GET /manifests/{namespace}/{name}", h.submission)
	mux.HandleFunc("PUT /manifests/{namespace}/{name}", h.replace)
	mux.HandleFunc("DELETE /manifests/{namespace}/{name}", func(w http.ResponseWriter, r *http.Request) {
		h.withdrawOne(w, r, true)
	})
	answers := inJSON(mux, "/manifests")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("dryRun") { // who asks for it must not get the deed
			fail(w, &api.Error{Status: http.StatusBadRequest, Text: "dryRun is not taken at /manifests; nothing was done"})
			return
		}
		answers.ServeHTTP(w, r)
	})
}

// replace answers PUT /manifests/{namespace}/{name}: the right to update is not the right to create. The manifest is read before
// anything is answered: a client that still sends would not see the answer.
func (h *handlers) replace(w http.ResponseWriter, r *http.Request) {
	text, err := readManifest(w, r)
	which := messages.GetSubmissions{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")}
	var found messages.SubmissionsTold
	if err == nil {
		found, err = askSubmit[messages.SubmissionsTold](h, r, which)
	}
	if err != nil {
		fail(w, err)
		return
	}
	// The name may be that of the pod; the one in its manifest is another, under which a new pod would be created.
	name := found.Submissions[0].Name
	h.hand(w, r, messages.SubmitPods{Manifest: text, Namespace: which.Namespace, Name: name, Replace: true})
}

// submissions answers GET /v1/submissions.
func (h *handlers) submissions(w http.ResponseWriter, r *http.Request) {
	found, err := askSubmit[messages.SubmissionsTold](h, r, messages.GetSubmissions{})
	if err != nil {
		fail(w, err)
		return
	}
	answer(w, http.StatusOK, api.Submissions{Submissions: found.Submissions})
}

// submission answers GET /v1/submissions/{namespace}/{name}.
func (h *handlers) submission(w http.ResponseWriter, r *http.Request) {
	question := messages.GetSubmissions{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")}
	found, err := askSubmit[messages.SubmissionsTold](h, r, question)
	if err != nil {
		fail(w, err)
		return
	}
	answer(w, http.StatusOK, found.Submissions[0])
}

// submit answers POST /v1/submissions[?replace=true][&dryRun=true]: a manifest of pods, ConfigMaps and Secrets.
func (h *handlers) submit(w http.ResponseWriter, r *http.Request) {
	var m messages.SubmitPods
	for name, to := range map[string]*bool{"replace": &m.Replace, "dryRun": &m.DryRun} {
		text := r.URL.Query().Get(name)
		if text == "" {
			continue
		}
		var err error
		if *to, err = strconv.ParseBool(text); err != nil {
			fail(w, &api.Error{Status: http.StatusBadRequest, Text: fmt.Sprintf("%s=%q is neither true nor false", name, text)})
			return
		}
	}
	h.accept(w, r, m)
}

// submitOne answers PUT /v1/submissions/{namespace}/{name}: the manifest of that pod, as it is to be from now on.
func (h *handlers) submitOne(w http.ResponseWriter, r *http.Request) {
	h.accept(w, r, messages.SubmitPods{Namespace: r.PathValue("namespace"), Name: r.PathValue("name"), Replace: true})
}

func (h *handlers) accept(w http.ResponseWriter, r *http.Request, m messages.SubmitPods) {
	var err error
	if m.Manifest, err = readManifest(w, r); err != nil {
		fail(w, err)
		return
	}
	h.hand(w, r, m)
}

// hand gives a manifest to the actor, and answers with what it did.
func (h *handlers) hand(w http.ResponseWriter, r *http.Request, m messages.SubmitPods) {
	submitted, err := askSubmit[messages.PodsSubmitted](h, r, m)
	if err != nil {
		fail(w, err)
		return
	}
	status := http.StatusOK
	for _, p := range submitted.Pods {
		if p.Change == messages.PodCreated && !m.DryRun {
			status = http.StatusCreated
		}
	}
	answer(w, status, api.Submitted{Pods: submitted.Pods})
}

func readManifest(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(readTimeout)) // a recorder in a test has none
	data, err := io.ReadAll(r.Body)
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, &api.Error{
			Status: http.StatusRequestEntityTooLarge,
			Text:   fmt.Sprintf("the manifest is larger than the %d MiB that it may have", large.Limit>>20),
		}
	case err != nil:
		return nil, &api.Error{Status: http.StatusBadRequest, Text: "the manifest did not arrive whole: " + err.Error()}
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	return data, nil
}

// withdraw answers DELETE /v1/submissions/{namespace}/{name}[?kind=ConfigMap][?grace=SECONDS][?exact=true].
func (h *handlers) withdraw(w http.ResponseWriter, r *http.Request) {
	h.withdrawOne(w, r, r.URL.Query().Get("exact") == "true")
}

func (h *handlers) withdrawOne(w http.ResponseWriter, r *http.Request, exact bool) {
	question := messages.WithdrawPod{Namespace: r.PathValue("namespace"), Name: r.PathValue("name"), Exact: exact,
		Kind: r.URL.Query().Get("kind")}
	if !slices.Contains([]string{"", "ConfigMap", "Secret"}, question.Kind) {
		text := fmt.Sprintf("kind=%q is none that can be submitted", question.Kind)
		fail(w, &api.Error{Status: http.StatusBadRequest, Text: text})
		return
	}
	if text := r.URL.Query().Get("grace"); text != "" {
		seconds, err := strconv.ParseInt(text, 10, 32)
		if err != nil || seconds < 0 {
			fail(w, &api.Error{Status: http.StatusBadRequest, Text: fmt.Sprintf("grace=%q is no number of seconds", text)})
			return
		}
		question.Grace = &seconds
	}
	gone, err := askSubmit[messages.PodWithdrawn](h, r, question)
	if err != nil {
		fail(w, err)
		return
	}
	answer(w, http.StatusOK, api.Submitted{Pods: []messages.SubmittedPod{gone.Pod}})
}

// askSubmit puts a question to the submit actor. That no answer comes means that it may have been done or not.
func askSubmit[T any](h *handlers, r *http.Request, question any) (T, error) {
	var none T
	got, err := h.askFor(r.Context(), submitTimeout, messages.Submit, question)
	var failed *api.Error
	if errors.As(err, &failed) && failed.Status == http.StatusNotFound { // between two lives
		return none, &api.Error{
			Status: http.StatusServiceUnavailable, Actor: messages.Submit.String(),
			Text: "submissions are not taken at this moment; send it again",
		}
	}
	if err != nil {
		return none, err
	}
	switch m := got.(type) {
	case T:
		return m, nil
	case messages.SubmissionRefused:
		return none, &api.Error{Status: refusals[m.Why], Text: m.Message, Problems: m.Problems, Accepted: m.Accepted}
	default:
		return none, fmt.Errorf("the actor %s answered with a %T", messages.Submit, got)
	}
}
