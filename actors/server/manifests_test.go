package server

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/actors/internal/manifest"
	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/messages"
)

// send makes a TLS request to the node's API as the friend.
func send(t *testing.T, address, method, path string, text []byte) (int, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "https://"+address+path, bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	conf := &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{certificate(t, "friend")}}
	resp, err := (&http.Transport{TLSClientConfig: conf, DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, answer
}

// On the node's API, if enabled, each method has the effect of its right and no other.
func TestManifestsAreSubmittedByTheNodesAPI(t *testing.T) {
	r, secure, readOnly := nodeRig(t, func(n *NodeAPI) { n.Submission = true })
	text := bytes.Repeat([]byte("#"), 2<<20) // more than the limit of other requests
	pod := messages.SubmittedPod{Namespace: "default", Name: "web", Change: messages.PodCreated}
	there := messages.SubmissionsReported{Submissions: []messages.Submission{{Namespace: "default", Name: "web", Manifest: []byte("{}")}}}
	for _, test := range []struct {
		method, path string
		question     any
		answer       any
		want         int
	}{
		{"POST", "/manifests", messages.SubmitPods{Manifest: text}, messages.PodsSubmitted{Pods: []messages.SubmittedPod{pod}}, 201},
		{"POST", "/manifests?replace=true", messages.SubmitPods{Manifest: text}, messages.SubmissionRefused{Why: messages.RefusedConflict}, 409},
		{"GET", "/manifests", messages.GetSubmissions{}, there, 200},
		{"GET", "/manifests/default/web", messages.GetSubmissions{Namespace: "default", Name: "web"}, there, 200},
		{"PUT", "/manifests/default/web", messages.GetSubmissions{Namespace: "default", Name: "web"},
			messages.SubmissionRefused{Why: messages.RefusedUnknown}, 404}, // it creates nothing
		{"DELETE", "/manifests/default/web", messages.WithdrawPod{Namespace: "default", Name: "web", Exact: true}, messages.PodWithdrawn{Pod: pod}, 200},
	} {
		r.tree.answer = test.answer
		sent := text
		if test.method == "GET" || test.method == "DELETE" { // an unread body ends the connection
			sent = nil
		}
		if code, body := send(t, secure, test.method, test.path, sent); code != test.want {
			t.Errorf("%s %s: %d %s, want %d", test.method, test.path, code, body, test.want)
		}
		if !reflect.DeepEqual(r.tree.question, test.question) {
			t.Errorf("%s %s: asked was a %T", test.method, test.path, r.tree.question)
		}
	}
	r.tree.answers = []any{there, messages.PodsSubmitted{Pods: []messages.SubmittedPod{pod}}}
	// The path may have the pod's name; the replacement uses the name in the manifest.
	if code, body := send(t, secure, "PUT", "/manifests/default/web-n1", text); code != http.StatusCreated {
		t.Errorf("%d %s", code, body)
	}
	if want := (messages.SubmitPods{Manifest: text, Namespace: "default", Name: "web", Replace: true}); !reflect.DeepEqual(r.tree.question, want) {
		t.Errorf("asked was a %T", r.tree.question)
	}
	r.tree.question = nil
	for method, path := range map[string]string{"POST": "/manifests?dryRun=All", "DELETE": "/manifests/default/web?dryRun=true"} {
		code, body := send(t, secure, method, path, nil)
		if code != http.StatusBadRequest || !strings.Contains(string(body), "nothing was done") || r.tree.question != nil {
			t.Errorf("%s %s: %d %s, asked was a %T", method, path, code, body, r.tree.question)
		}
	}
	var refused api.Error
	for path, want := range map[string]int{"/manifests/default": 404, "/manifests": 405} {
		code, body := send(t, secure, "PATCH", path, nil)
		if err := json.Unmarshal(body, &refused); err != nil || code != want || refused.Text == "" {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	if code, body := send(t, secure, "POST", "/manifests", make([]byte, manifest.MaxBytes+1)); code != http.StatusRequestEntityTooLarge {
		t.Errorf("too large: %d %s", code, body)
	}
	if resp, _ := ask(t, secure, "stranger", "/manifests", nil); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("a stranger: %s", resp.Status)
	}
	if code, _ := public(t, "http://"+readOnly+"/manifests"); code != http.StatusNotFound {
		t.Errorf("without credentials: %d", code)
	}
	_, off, _ := nodeRig(t, nil)
	if code, body := send(t, off, "POST", "/manifests", nil); code != http.StatusNotFound || strings.Contains(string(body), "submi") {
		t.Errorf("switched off: %d %s", code, body)
	}
}
