package api

import (
	"context"
	"net/http"
	"strconv"

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

// DryRun is Submit with replace, but that nothing is changed: each pod comes with its version before and after.
func (c *Client) DryRun(ctx context.Context, manifest []byte) (*Submitted, error) {
	return call[Submitted](ctx, c, http.MethodPost, submissions, "replace=true&dryRun=true", manifest)
}

// Put has the one pod of a manifest wanted under the name that it has there, in place of the one before.
func (c *Client) Put(ctx context.Context, namespace, name string, manifest []byte) (*Submitted, error) {
	return call[Submitted](ctx, c, http.MethodPut, submissionPath(namespace, name), "", manifest)
}

// Withdraw has a submitted pod wanted no more. The name is that in its manifest, or that of a pod that ends already. grace is how
// long it has at most, in seconds, also where it ends already; negative: its own grace period.
func (c *Client) Withdraw(ctx context.Context, namespace, name string, grace int64) (*Submitted, error) {
	query := "exact=true"
	if grace >= 0 {
		query += "&grace=" + strconv.FormatInt(grace, 10)
	}
	return call[Submitted](ctx, c, http.MethodDelete, submissionPath(namespace, name), query, nil)
}

// Submissions lists what was submitted.
func (c *Client) Submissions(ctx context.Context) (*Submissions, error) {
	return get[Submissions](ctx, c, submissions, "")
}

// Submission is the submission of that name; the name may be that of the manifest or that of the pod.
func (c *Client) Submission(ctx context.Context, namespace, name string) (*messages.Submission, error) {
	return get[messages.Submission](ctx, c, submissionPath(namespace, name), "")
}

// WithdrawObject removes a ConfigMap or a Secret that was submitted.
func (c *Client) WithdrawObject(ctx context.Context, kind, namespace, name string) (*Submitted, error) {
	return call[Submitted](ctx, c, http.MethodDelete, submissionPath(namespace, name), "kind="+kind, nil)
}

func submissionPath(namespace, name string) string {
	return submissions + "/" + namespace + "/" + name // escaped with the URL that it becomes part of
}
