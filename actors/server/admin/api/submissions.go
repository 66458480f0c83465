package api

import (
	"context"
	"net/http"

	"github.com/playlet-dev/playlet/messages"
)

const submissions = "/v1/submissions"

// Submit has the pods of a manifest wanted. With replace, pods that were submitted before under the same names are
// replaced; without it, another version of one is an error. A refusal is an *Error with the problems. An error that is
// none leaves it open whether the pods were accepted; sending the same again settles that.
func (c *Client) Submit(ctx context.Context, manifest []byte, replace bool) (*Submitted, error) {
	query := ""
	if replace {
		query = "replace=true"
	}
	return call[Submitted](ctx, c, http.MethodPost, submissions, query, manifest)
}

// Put has the one pod of a manifest wanted under the name that it has there, in place of the one before.
func (c *Client) Put(ctx context.Context, namespace, name string, manifest []byte) (*Submitted, error) {
	return call[Submitted](ctx, c, http.MethodPut, submissionPath(namespace, name), "", manifest)
}

// Withdraw has a submitted pod wanted no more. The name may be that of the manifest or that of the pod.
func (c *Client) Withdraw(ctx context.Context, namespace, name string) (*Submitted, error) {
	return call[Submitted](ctx, c, http.MethodDelete, submissionPath(namespace, name), "", nil)
}

// Submissions lists what was submitted.
func (c *Client) Submissions(ctx context.Context) (*Submissions, error) {
	return get[Submissions](ctx, c, submissions, "")
}

// Submission is the submission of that name; the name may be that of the manifest or that of the pod.
func (c *Client) Submission(ctx context.Context, namespace, name string) (*messages.Submission, error) {
	return get[messages.Submission](ctx, c, submissionPath(namespace, name), "")
}

func submissionPath(namespace, name string) string {
	return submissions + "/" + namespace + "/" + name // escaped with the URL that it becomes part of
}
