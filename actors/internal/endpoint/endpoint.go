// Package endpoint speaks to what an application in a pod serves, for probes and for hooks: it finds the port that a name
// stands for, and makes one HTTP request as the kubelet makes it. Safe for concurrent use.
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
	// maxBody bounds what is read of a response, in bytes; the kubelet's.
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
		return 0, fmt.Errorf("%d is no port", n)
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

// Place is a URL without its query, which may hold a secret. What was no URL has its query in its path (see URL).
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

// Get makes the request, within the context. The endpoint is the application's own, so that certificates are not verified,
// as with the kubelet; redirects are followed on the same host only: of another, the redirect itself is the answer. headers
// replace the User-Agent and the Accept that are sent otherwise; one that is empty takes it away. With an error, the code is
// that of a response whose body broke off, or 0.
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

// withoutURL is an error of net/http or net/url without the URL that they put before it, whose query may hold a secret.
func withoutURL(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	return Plain(err)
}

// Plain is the error of a connection that could not be made without Go's words for what was tried: "connection refused".
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
