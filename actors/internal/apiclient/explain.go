package apiclient

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/playlet-dev/playlet/messages"
)

// Explain describes an error of the API server in a sentence, with the remedy where there is one. The same problem always has
// the same text, without request URLs and local ports. node is this node's name, which its credentials must contain. err is
// not nil.
func Explain(err error, node string) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		if text := answered(status.Status().Code, bare(status.Status().Message), node); text != "" {
			return text
		}
	}
	if text := distrusted(err); text != "" {
		return text
	}
	return unreachable(err)
}

// Explained is an error of the API server in the words of Explain.
func Explained(err error, node string) error { return explainedError{Explain(err, node), err} }

type explainedError struct {
	text  string
	cause error
}

func (e explainedError) Error() string { return e.text }
func (e explainedError) Unwrap() error { return e.cause }

// answered is about an answer with this HTTP status; empty where that is none.
func answered(code int32, message, node string) string {
	switch {
	case code == http.StatusUnauthorized:
		return "the API server does not accept this node's credentials (401 Unauthorized): the certificate or token of the " +
			"kubeconfig's user may have expired, or be for another cluster"
	case code == http.StatusForbidden && strings.Contains(message, "no relationship found between node"): // the Node authorizer's
		return "the API server does not allow it (403 Forbidden): as far as it knows no pod of this node names it: " + message
	case code == http.StatusForbidden:
		return fmt.Sprintf("the API server does not allow it (403 Forbidden); the kubeconfig's user has to be system:node:%s "+
			"in the group system:nodes (--hostname-override is the node's name): %s", node, message)
	case code == http.StatusNotFound:
		return "the API server does not have it (404 Not Found): " + message
	case code == http.StatusConflict:
		return "somebody else has made or changed it meanwhile (409 Conflict): " + message
	case code == http.StatusGone:
		return "the API server no longer has what came after its last answer (410 Gone); it is asked for all again"
	case code == http.StatusTooManyRequests:
		return "the API server has too much to do (429 Too Many Requests); it is asked again"
	case code == http.StatusRequestTimeout, code == http.StatusGatewayTimeout:
		return fmt.Sprintf("the API server did not finish in time (%d): %s", code, message)
	case code >= http.StatusInternalServerError:
		return fmt.Sprintf("the API server has a fault of its own (%d): %s", code, message)
	case code >= http.StatusBadRequest:
		return fmt.Sprintf("the API server answers with an error (%d): %s", code, message)
	}
	return ""
}

// distrusted is about certificates, the API server's and this node's; empty where nothing is wrong with them.
func distrusted(err error) string {
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return "the API server's certificate is not signed by the kubeconfig's certificate-authority: that, or the " +
			"kubeconfig's server, is of another cluster"
	}
	if e, ok := errors.AsType[x509.HostnameError](err); ok {
		return "the API server's certificate is not for the name or address that the kubeconfig's server has: " + e.Error()
	}
	if e, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		if e.Reason == x509.Expired {
			return "the API server's certificate has expired or is not valid yet: it has to be renewed, or this machine's " +
				"clock is wrong"
		}
		return "the API server's certificate is not valid: " + e.Error()
	}
	if e, ok := errors.AsType[tls.AlertError](err); ok {
		return "the API server does not accept this node's certificate, which the kubeconfig names: it may have expired, or " +
			"be for another cluster (" + e.Error() + ")"
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return "what answers at the address of the kubeconfig's server speaks no TLS: the port may be wrong"
	}
	return ""
}

// NoCredentials is the error of a request that was not sent, because this node has no credentials for the API server. Its
// text is the reason.
type NoCredentials string

func (n NoCredentials) Error() string { return string(n) }

// unreachable describes an error without any response.
func unreachable(err error) string {
	if e, ok := errors.AsType[NoCredentials](err); ok {
		return string(e)
	}
	if e, ok := errors.AsType[*net.DNSError](err); ok {
		if e.IsNotFound {
			return fmt.Sprintf("the API server cannot be reached: its name %s is not known to the DNS; see the kubeconfig's "+
				"server", e.Name)
		}
		return fmt.Sprintf("the API server cannot be reached: DNS has no address for %s; see this machine's name servers", e.Name)
	}
	late, isNet := errors.AsType[net.Error](err)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "the API server cannot be reached: nothing listens at its address (connection refused); it may be down, or the " +
			"kubeconfig's server is wrong"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "the API server cannot be reached: there is no route to its address (" + bare(inner(err).Error()) + ")"
	case errors.Is(err, context.DeadlineExceeded), isNet && late.Timeout():
		return "the API server does not answer in time"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET),
		errors.Is(err, syscall.EPIPE):
		return "the API server cannot be reached: the connection was cut"
	case isNet:
		return "the API server cannot be reached: " + bare(inner(err).Error())
	}
	return bare(inner(err).Error())
}

// inner is the error without the request that it was for, and without addresses.
func inner(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	if e, ok := errors.AsType[*net.OpError](err); ok && e.Err != nil {
		return fmt.Errorf("%s: %w", e.Op, e.Err)
	}
	return err
}

// Absent reports whether the API server answered that it does not have the object. A page with the code 404, e.g. of a proxy
// before it, is not such an answer.
func Absent(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.IsUnexpectedServerError(err)
}

// maxText is the length, in bytes, to which a message of the API server is cut.
const maxText = 2 << 10

// changing matches the parts that differ between equal problems: URLs, and the local port before the remote address.
var changing = regexp.MustCompile(`"?https?://[^\s"]*"?:?\s?|\S+:\d+->`)

// bare returns text on one line without its changing parts.
func bare(text string) string {
	return strings.ReplaceAll(changing.ReplaceAllString(messages.Shorten(text, maxText), ""), "\n", " ")
}
