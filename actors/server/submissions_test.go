package server

import (
	"bytes"
	"errors"
	"reflect"
	"testing"

	"github.com/playlet-dev/playlet/actors/internal/manifest"
	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/messages"
)

func TestSubmissionsAreHandedToTheirActor(t *testing.T) {
	r := openRig(t)
	manifest := bytes.Repeat([]byte("#"), 2<<20) // more than the limit of other requests
	pod := messages.SubmittedPod{Namespace: "default", Name: "web", PodName: "web-node", UID: "u1", Change: messages.PodCreated}
	object := messages.SubmittedObject{Kind: "Secret", Namespace: "shop", Name: "a", Keys: []string{"k"}}
	sub := messages.Submission{Namespace: "default", Name: "web", Manifest: []byte(`{}`)}
	for _, test := range []struct {
		name     string
		ask      func() (any, error)
		question any
		answer   any
		want     any
	}{
		{"submit", func() (any, error) { return r.client.Submit(t.Context(), manifest, false) },
			messages.SubmitPods{Manifest: manifest}, messages.PodsSubmitted{Pods: []messages.SubmittedPod{pod}},
			&api.SubmitReply{Pods: []messages.SubmittedPod{pod}}},
		{"replace", func() (any, error) { return r.client.Submit(t.Context(), manifest, true) },
			messages.SubmitPods{Manifest: manifest, Replace: true}, messages.PodsSubmitted{Pods: []messages.SubmittedPod{}},
			&api.SubmitReply{Pods: []messages.SubmittedPod{}}},
		{"put", func() (any, error) { return r.client.Put(t.Context(), "default", "web", manifest) },
			messages.SubmitPods{Manifest: manifest, Namespace: "default", Name: "web", Replace: true},
			messages.PodsSubmitted{Pods: []messages.SubmittedPod{pod}}, &api.SubmitReply{Pods: []messages.SubmittedPod{pod}}},
		{"withdraw", func() (any, error) { return r.client.Withdraw(t.Context(), "default", "web", -1, false) },
			messages.WithdrawPod{Namespace: "default", Name: "web", Exact: true}, messages.PodWithdrawn{Pod: pod},
			&api.SubmitReply{Pods: []messages.SubmittedPod{pod}}},
		{"withdraw in a dry run", func() (any, error) { return r.client.Withdraw(t.Context(), "default", "web", 5, true) },
			messages.WithdrawPod{Namespace: "default", Name: "web", Exact: true, DryRun: true, Grace: new(int64(5))},
			messages.PodWithdrawn{Pod: pod}, &api.SubmitReply{Pods: []messages.SubmittedPod{pod}}},
		{"withdraw an object", func() (any, error) { return r.client.WithdrawObject(t.Context(), "Secret", "shop", "a", true) },
			messages.WithdrawPod{Namespace: "shop", Name: "a", Kind: "Secret", DryRun: true}, messages.PodWithdrawn{Pod: pod},
			&api.SubmitReply{Pods: []messages.SubmittedPod{pod}}},
		{"list objects", func() (any, error) { return r.client.SubmittedObjects(t.Context()) }, messages.GetSubmittedObjects{},
			messages.SubmittedObjectsReported{Objects: []messages.SubmittedObject{object}},
			&api.SubmittedObjects{Objects: []messages.SubmittedObject{object}}},
		{"list", func() (any, error) { return r.client.Submissions(t.Context()) },
			messages.GetSubmissions{}, messages.SubmissionsReported{Submissions: []messages.Submission{sub}},
			&api.Submissions{Submissions: []messages.Submission{sub}}},
		{"get", func() (any, error) { return r.client.Submission(t.Context(), "default", "web") },
			messages.GetSubmissions{Namespace: "default", Name: "web"},
			messages.SubmissionsReported{Submissions: []messages.Submission{sub}}, &sub},
	} {
		t.Run(test.name, func(t *testing.T) {
			r.tree.answer = test.answer
			got, err := test.ask()
			if err != nil || !reflect.DeepEqual(got, test.want) {
				t.Errorf("%+v, %v", got, err)
			}
			if !reflect.DeepEqual(r.tree.question, test.question) {
				t.Errorf("asked was a %T", r.tree.question)
			}
		})
	}
}

func TestRefusedSubmissions(t *testing.T) {
	r := openRig(t)
	problems := []messages.ManifestProblem{{Line: 3, Field: "spec.nope", Message: "no"}}
	for why, status := range map[messages.Refusal]int{
		messages.RefusedMalformed: 400, messages.RefusedInvalid: 422, messages.RefusedConflict: 409, messages.RefusedUnknown: 404,
		messages.RefusedNoSpace: 507, messages.RefusedFailure: 500,
	} {
		r.tree.answer = messages.SubmissionRefused{Why: why, Message: "because", Problems: problems}
		_, err := r.client.Submit(t.Context(), nil, false)
		var got *api.Error
		if !errors.As(err, &got) || got.Status != status || got.Text != "because" || !reflect.DeepEqual(got.Problems, problems) {
			t.Errorf("%s: %+v", why, err)
		}
	}
	var got *api.Error
	if _, err := r.client.Submit(t.Context(), make([]byte, manifest.MaxBytes+1), false); !errors.As(err, &got) ||
		got.Status != 413 {
		t.Errorf("too large: %v", err)
	}
	delete(r.tree.kinds, messages.Submit)
	if _, err := r.client.Submit(t.Context(), nil, false); !errors.As(err, &got) || got.Status != 503 ||
		got.Actor != "sources/submit" {
		t.Errorf("between two lives: %v", err)
	}
	r.tree.kinds[messages.Submit], r.tree.hangs = "submit", true
	if _, err := r.client.Submit(t.Context(), nil, false); !errors.As(err, &got) || got.Status != 503 ||
		got.Actor != "sources/submit" {
		t.Errorf("no answer: %v", err)
	}
}
