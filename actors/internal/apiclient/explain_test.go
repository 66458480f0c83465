package apiclient

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// asked is a request that failed so, from a port of our own.
func asked(port int, cause error) error {
	return &url.Error{Op: "Get", URL: fmt.Sprintf("https://192.0.2.1:6443/api/v1/pods?timeout=%ds", port), Err: &net.OpError{
		Op: "read", Net: "tcp", Source: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 9), Port: port},
		Addr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 6443}, Err: cause,
	}}
}

func TestExplain(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	for want, err := range map[string]error{
		"does not accept this node's credentials (401 Unauthorized)": apierrors.NewUnauthorized("no"),
		"system:node:n in the group system:nodes (--hostname-override is the node's name): pods \"": apierrors.NewForbidden(pods,
			"p", errors.New("no")),
		"as far as it knows no pod of this node names it: ": apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "s", errors.New("no relationship found between node 'n' and this object")),
		"does not have it (404 Not Found): pods \"p\" not found": apierrors.NewNotFound(pods,
			"p"),
		"somebody else has made or changed it meanwhile (409 Conflict)": apierrors.NewConflict(pods,
			"p", errors.New("changed")),
		"made or changed it meanwhile (409 Conflict): pods \"p\" already exists": apierrors.NewAlreadyExists(pods, "p"),
		"(410 Gone); it is asked for all again":                                  apierrors.NewResourceExpired("too old"),
		"too much to do (429 Too Many Requests)":                                 apierrors.NewTooManyRequests("busy", 1),
		"has a fault of its own (500): Internal error occurred: etcd":            apierrors.NewInternalError(errors.New("etcd")),
		"has a fault of its own (503)":                                           apierrors.NewServiceUnavailable("soon"),
		"did not finish in time (504)":                                           apierrors.NewTimeoutError("slow", 1),
		"answers with an error (400): what":                                      apierrors.NewBadRequest("what"),
		"not signed by the kubeconfig's certificate-authority": asked(1,
			&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}),
		"is not for the name or address": asked(1,
			x509.HostnameError{Certificate: &x509.Certificate{DNSNames: []string{"a"}}, Host: "b"}),
		"certificate has expired or is not valid yet": asked(1,
			x509.CertificateInvalidError{Reason: x509.Expired}),
		"does not accept this node's certificate": &url.Error{Err: &net.OpError{Op: "remote error", Err: tls.AlertError(45)}},
		"speaks no TLS": &url.Error{Err: tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}},
		"nothing listens at its address (connection refused)": asked(1,
			os.NewSyscallError("connect", syscall.ECONNREFUSED)),
		"there is no route to its address (read: connect: no route to host)": asked(1,
			os.NewSyscallError("connect", syscall.EHOSTUNREACH)),
		"the connection was cut": &url.Error{Err: io.EOF},
		"cannot be reached: the connection was cut": asked(1,
			os.NewSyscallError("read", syscall.ECONNRESET)),
		"its name api.example is not known to the DNS": &url.Error{Err: &net.OpError{Op: "dial",
			Err: &net.DNSError{Name: "api.example", IsNotFound: true}}},
		"DNS has no address for api.example": &url.Error{Err: &net.OpError{Op: "dial",
			Err: &net.DNSError{Name: "api.example", IsTimeout: true}}},
		"does not answer in time":                context.DeadlineExceeded,
		"the API server does not answer in time": asked(1, os.ErrDeadlineExceeded),
		"client rate limiter":                    errors.New("client rate limiter Wait returned an error"),
	} {
		got := Explain(err, "n")
		if !strings.Contains(got, want) || strings.Contains(got, "https://") || strings.Contains(got, "\n") {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}

// The same problem has the same text for any request and any local port.
func TestTheSameTroubleHasTheSameWords(t *testing.T) {
	for _, cause := range []error{io.ErrClosedPipe, syscall.ECONNREFUSED, errors.New("http2: client connection lost"),
		errors.New("write tcp 192.0.2.9:%d->192.0.2.1:6443: broken")} {
		texts := map[string]bool{}
		for _, port := range []int{40001, 40002} {
			err := cause
			if strings.Contains(cause.Error(), "%d") {
				err = fmt.Errorf(cause.Error(), port)
			}
			texts[Explain(asked(port, err), "n")] = true
			texts[Explain(fmt.Errorf("Get \"https://192.0.2.1:6443/x%d\": %w", port, err), "n")] = true
		}
		if len(texts) > 2 {
			t.Errorf("%v: %v", cause, texts)
		}
		for text := range texts {
			if strings.Contains(text, "4000") || strings.Contains(text, "https") {
				t.Errorf("%v: %q", cause, text)
			}
		}
	}
	if got := Explain(apierrors.NewInternalError(errors.New(`Post "https://hook.example:443/x?timeout=10s": dial tcp 192.0.2.9:40001->192.0.2.1:443: refused`)), "n"); strings.Contains(got, "https") || strings.Contains(got, "40001") {
		t.Error(got)
	}
}

// A request that was not sent does not indicate whether the API server is reachable.
func TestExplainOfARequestWithoutCredentials(t *testing.T) {
	err := &url.Error{Op: "Get", URL: "https://192.0.2.1:6443/", Err: NoCredentials("this node has no client certificate")}
	if got := Explain(err, "n"); got != "this node has no client certificate" {
		t.Error(got)
	}
}
