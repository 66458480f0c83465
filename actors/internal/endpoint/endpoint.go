// Package endpoint sends requests to applications in pods, for probes and hooks. It resolves named ports, and makes HTTP
// requests like the kubelet. Safe for concurrent use.
package endpoint

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const (
	// maxBody is the maximum number of bytes read from a response, as in the kubelet.
	maxBody = 10 << 10
	// maxHeader bounds the headers of a response, in bytes: hundreds may be read at a time.
	maxHeader = 256 << 10
	// maxRedirects on the same host are followed.
	maxRedirects = 10
)

// Port is the number of a port that is given by number, by the name that the container gives it, or by a number as text.
func Port(p intstr.IntOrString, ports []v1.ContainerPort) (int, error) {
	if p.Type == intstr.Int {
		return inRange(p.IntValue())
	}
	for i := range ports {
		if ports[i].Name == p.StrVal {
			return inRange(int(ports[i].ContainerPort))
		}
	}
	n, err := strconv.Atoi(p.StrVal)
	if err != nil {
		return 0, fmt.Errorf("the container has no port named %q", p.StrVal)
	}
	return inRange(n)
}

func inRange(n int) (int, error) {
	if n < 1 || n > 65535 {
		return 0, fmt.Errorf("%d is not a valid port", n)
	}
	return n, nil
}

// Address is host:port of a pod, or of the host that is named instead.
func Address(host string, ips []string, port int) (string, error) {
	if host == "" {
		if len(ips) == 0 {
			return "", errors.New("the pod has no address")
		}
		host = ips[0]
	}
	return net.JoinHostPort(host, strconv.Itoa(port)), nil
}

// URL is where the request goes. A path that is no URL is taken as it stands.
func URL(get *v1.HTTPGetAction, ips []string, ports []v1.ContainerPort) (*url.URL, error) {
	port, err := Port(get.Port, ports)
	if err != nil {
		return nil, err
	}
	address, err := Address(get.Host, ips, port)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(get.Path)
	if err != nil || u.Host != "" || u.Opaque != "" {
		u = &url.URL{Path: get.Path}
	}
	u.Scheme, u.Host, u.User = strings.ToLower(string(get.Scheme)), address, nil
	if u.Scheme == "" {
		u.Scheme = "http"
	}
	return u, nil
}

// Place returns a URL without its query, which may contain a secret. An invalid URL has its query in its path (see URL).
func Place(u *url.URL) string {
	path, _, _ := strings.Cut(u.Path, "?")
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: path}).String()
}

// Dialer connects to applications. Sockets linger for a second only, so that many probes do not use up the ports of the
// node with connections that wait for their last packets.
func Dialer() *net.Dialer {
	return &net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			// Without it a probe works just as well.
			_ = unix.SetsockoptLinger(int(fd), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: 1})
		})
	}}
}

// Answer is a response, with the beginning of its body.
type Answer struct {
	Code int
	Body []byte
}

// Get makes the request within ctx. As in the kubelet, certificates are not verified, because the endpoint belongs to the
// application. Redirects are followed on the same host only; a redirect to another host is itself the answer. headers replace
// the default User-Agent and Accept; an empty value removes one. With an error, the code is 0, or the code of a response with
// an incomplete body.
func Get(ctx context.Context, target *url.URL, headers []v1.HTTPHeader, userAgent string) (Answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return Answer{}, fmt.Errorf("GET %s: %w", Place(target), withoutURL(err))
	}
	setHeaders(req, headers, userAgent)
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // the pod's own endpoint, by its address
		DisableKeepAlives: true, DisableCompression: true, Proxy: nil, DialContext: Dialer().DialContext,
		MaxResponseHeaderBytes: maxHeader,
		ForceAttemptHTTP2:      true, // over TLS, where the application offers it
	}
	defer transport.CloseIdleConnections()
	client := http.Client{Transport: transport, CheckRedirect: sameHost}
	resp, err := client.Do(req)
	if err != nil {
		return Answer{}, fmt.Errorf("GET %s: %w", Place(target), withoutURL(err))
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return Answer{Code: resp.StatusCode}, fmt.Errorf("GET %s: reading the response: %w", Place(target), err)
	}
	return Answer{Code: resp.StatusCode, Body: body}, nil
}

// withoutURL returns an error of net/http or net/url without its URL, since the query may contain a secret.
func withoutURL(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	return Plain(err)
}

// Plain returns the cause of a failed connection without Go's prefix, e.g. "connection refused".
func Plain(err error) error {
	if e, ok := errors.AsType[*net.OpError](err); ok && e.Op == "dial" {
		err = e.Err
	}
	if e, ok := errors.AsType[*os.SyscallError](err); ok {
		err = e.Err
	}
	return err
}

func setHeaders(req *http.Request, headers []v1.HTTPHeader, userAgent string) {
	for _, h := range headers {
		if strings.EqualFold(h.Name, "Host") {
			req.Host = h.Value
			continue
		}
		req.Header.Add(h.Name, h.Value)
	}
	for name, value := range map[string]string{"User-Agent": userAgent, "Accept": "*/*"} {
		switch given, ok := req.Header[http.CanonicalHeaderKey(name)]; {
		case !ok:
			req.Header.Set(name, value)
		case name == "Accept" && len(given) == 1 && given[0] == "": // an empty User-Agent is left out by net/http
			req.Header.Del(name)
		}
	}
}

func sameHost(r *http.Request, via []*http.Request) error {
	if r.URL.Hostname() != via[0].URL.Hostname() {
		return http.ErrUseLastResponse
	}
	if len(via) >= maxRedirects {
		return fmt.Errorf("stopped after %d redirects", maxRedirects)
	}
	return nil
}
