package apiclient

import (
	"errors"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Explain says what an error of the API server means, and what to do where somebody has to do something. node is this
// node's name, which its credentials have to name.
func Explain(err error, node string) string {
	if refused, ok := errors.AsType[*url.Error](err); ok && !apierrors.IsUnauthorized(err) && !apierrors.IsForbidden(err) {
		return "the API server cannot be reached: " + refused.Err.Error()
	}
	switch {
	case apierrors.IsUnauthorized(err):
		return "the API server does not accept this node's credentials (401): those that the kubeconfig names may have expired"
	case apierrors.IsForbidden(err):
		return "the API server does not allow it (403); the credentials have to be those of system:node:" + node + ", in the group system:nodes: " + err.Error()
	case apierrors.IsTooManyRequests(err):
		return "the API server has too much to do (429): " + err.Error()
	case apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err):
		return "the API server did not answer in time: " + err.Error()
	case apierrors.IsInternalError(err) || apierrors.IsServiceUnavailable(err):
		return "the API server fails: " + err.Error()
	}
	return err.Error()
}
