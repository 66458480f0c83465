package apiserver

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// describe says in plain words why the pods of this node are not to be had, and what to do where that is known.
func describe(err error, node string) string {
	var status apierrors.APIStatus
	switch {
	case apierrors.IsUnauthorized(err):
		return "it does not accept this node's credentials (401 Unauthorized): see the user in the kubeconfig, whose certificate or token may have expired"
	case apierrors.IsForbidden(err):
		return fmt.Sprintf("it does not let this agent read the pods of the node %s (403 Forbidden): the kubeconfig's user has to be system:node:%s in the group system:nodes (--hostname-override is the node's name)", node, node)
	case apierrors.IsTooManyRequests(err):
		return "it has too much to do (429 Too Many Requests); it is asked again"
	case apierrors.IsResourceExpired(err) || apierrors.IsGone(err):
		return "it no longer has what came after the last answer (410 Gone); it is asked for all again"
	case errors.As(err, &status) && status.Status().Code >= 500:
		return fmt.Sprintf("it has a fault of its own (%d): %s", status.Status().Code, status.Status().Message)
	case errors.As(err, &status):
		return fmt.Sprintf("it answers with an error (%d): %s", status.Status().Code, status.Status().Message)
	}
	return unreachable(err)
}

// unreachable says why there is no answer at all.
func unreachable(err error) string {
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	switch {
	case errors.As(err, &unknown), errors.As(err, &name):
		return "its certificate is not good (the kubeconfig's certificate-authority and server say which is): " + inner(err).Error()
	case errors.Is(err, context.DeadlineExceeded):
		return "it does not answer in time"
	}
	var n net.Error
	if errors.As(err, &n) {
		return "it cannot be reached: " + inner(err).Error()
	}
	return "it cannot be read: " + inner(err).Error()
}

// inner is the error without the URL that was asked, and without addresses.
func inner(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	var op *net.OpError // it has our own port, which differs each time
	if errors.As(err, &op) && op.Err != nil {
		return fmt.Errorf("%s: %w", op.Op, op.Err)
	}
	return err
}

// problemText is the whole sentence.
func problemText(what string, since time.Time) string {
	return fmt.Sprintf("since %s the pods of this node cannot be read from the API server: %s", since.UTC().Format(time.RFC3339), what)
}
