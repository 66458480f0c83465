package prober

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/playlet-dev/playlet/cri"
)

// jobOf is one run of a probe at a port of this machine, which the container names "web".
func jobOf(t *testing.T, address string, h v1.ProbeHandler, timeout time.Duration) job {
	t.Helper()
	ctr := &v1.Container{Name: "c", Env: []v1.EnvVar{{Name: "WORD", Value: "said"}}}
	if address != "" {
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.Atoi(port)
		if err != nil {
			t.Fatal(err)
		}
		ctr.Ports = []v1.ContainerPort{{Name: "web", ContainerPort: int32(n)}}
		if h.GRPC != nil {
			h.GRPC.Port = int32(n)
		}
	}
	return job{id: "id", container: ctr, spec: &v1.Probe{ProbeHandler: h}, ips: []string{"127.0.0.1"}, timeout: timeout}
}

func web(path string, headers ...v1.HTTPHeader) v1.ProbeHandler {
	return v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Path: path, Port: intstr.FromString("web"), HTTPHeaders: headers}}
}

// waitLimit bounds a wait; only a hang reaches it.
const waitLimit = time.Minute

func TestHTTP(t *testing.T) {
	hung := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/code/", func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/code/"))
		w.WriteHeader(n)
	})
	mux.HandleFunc("/same", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/code/500", http.StatusFound) })
	mux.HandleFunc("/other", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://localhost.invalid/", http.StatusFound)
	})
	mux.HandleFunc("/loop", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/loop", http.StatusFound) })
	mux.HandleFunc("/endless", func(w http.ResponseWriter, _ *http.Request) {
		for {
			if _, err := w.Write(make([]byte, 4096)); err != nil {
				return
			}
		}
	})
	mux.HandleFunc("/hang", func(http.ResponseWriter, *http.Request) { <-hung })
	mux.HandleFunc("/headers", func(w http.ResponseWriter, r *http.Request) {
		if r.Host != "some.host" || r.UserAgent() != "kube-probe/1.2" || r.Header.Get("Accept") != "*/*" ||
			r.Header.Get("X-One") != "1" || r.URL.RawQuery != "a=b" {
			w.WriteHeader(http.StatusTeapot)
		}
	})
	mux.HandleFunc("/own", func(w http.ResponseWriter, r *http.Request) {
		if r.UserAgent() != "mine" || r.Header.Values("Accept") != nil {
			w.WriteHeader(http.StatusTeapot)
		}
	})
	plain, secure := httptest.NewServer(mux), httptest.NewTLSServer(mux)
	defer plain.Close()
	defer secure.Close()
	defer close(hung)
	for name, c := range map[string]struct {
		probe v1.ProbeHandler
		want  result
		says  string
	}{
		"200": {web("/code/200"), success, ""}, "399": {web("/code/399"), warning, "terminated redirects"},
		"400": {web("/code/400"), failure, "statuscode: 400"}, "500": {web("/code/500"), failure, "statuscode: 500"},
		"redirect here": {web("/same"), failure, "500"},
		"redirect elsewhere": {web("/other"), warning,
			`terminated redirects, Response body: <a href="http://localhost.invalid/">Found</a>.`},
		"redirects for ever": {web("/loop"), failure, "10 redirects"}, "an endless body": {web("/endless"), success, ""},
		"no answer": {web("/hang"), failure, "deadline"},
		"headers": {web("/headers?a=b", v1.HTTPHeader{Name: "host", Value: "some.host"},
			v1.HTTPHeader{Name: "X-One", Value: "1"}), success, ""},
		"own": {web("/own", v1.HTTPHeader{Name: "user-agent", Value: "mine"}, v1.HTTPHeader{Name: "Accept"}), success,
			""},
		"no such port": {v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Path: "/", Port: intstr.FromString("metrics")}}, unknown,
			"metrics"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, server := range []*httptest.Server{plain, secure} {
				u, err := url.Parse(server.URL)
				if err != nil {
					t.Fatal(err)
				}
				limit := waitLimit
				if name == "no answer" {
					limit = 50 * time.Millisecond
				}
				j := jobOf(t, u.Host, *c.probe.DeepCopy(), limit)
				j.spec.HTTPGet.Scheme = v1.URIScheme(strings.ToUpper(u.Scheme))
				got := j.act(t.Context(), Options{UserAgent: "kube-probe/1.2"})
				if late := got.result == unknown && strings.Contains(got.message, "held up"); got.result != c.want && !late ||
					!strings.Contains(got.message, c.says) {
					t.Errorf("%s: %+v", u.Scheme, got)
				}
			}
		})
	}
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestTCP(t *testing.T) {
	l := listen(t)
	for _, port := range []intstr.IntOrString{intstr.FromString("web"), intstr.FromString("nothing")} {
		j := jobOf(t, l.Addr().String(), v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: port}}, waitLimit)
		want := success
		if port.StrVal == "nothing" {
			want = unknown
		}
		if got := j.act(t.Context(), Options{}); got.result != want {
			t.Errorf("%s: %+v", port.StrVal, got)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	j := jobOf(t, l.Addr().String(), v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromString("web")}}, waitLimit)
	if got := j.act(t.Context(), Options{}); got.result != failure || got.message != "TCP "+l.Addr().String()+": connection refused" {
		t.Errorf("nobody listens: %+v", got)
	}
	if j.ips = nil; j.act(t.Context(), Options{}).result != unknown {
		t.Error("a pod without an address was asked")
	}
}

func TestGRPC(t *testing.T) {
	tlsServer := httptest.NewTLSServer(nil) // for its certificate
	creds := credentials.NewServerTLSFromCert(&tlsServer.TLS.Certificates[0])
	tlsServer.Close()
	for _, mode := range []v1.GRPCProbeMode{v1.GRPCProbeModePlaintext, v1.GRPCProbeModeTLS} {
		var options []grpc.ServerOption
		if mode == v1.GRPCProbeModeTLS {
			options = append(options, grpc.Creds(creds))
		}
		server, checks, l := grpc.NewServer(options...), health.NewServer(), listen(t)
		checks.SetServingStatus("sick", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
		grpc_health_v1.RegisterHealthServer(server, checks)
		go func() { _ = server.Serve(l) }() // ends with Stop
		bare, bareListener := grpc.NewServer(options...), listen(t)
		go func() { _ = bare.Serve(bareListener) }()
		for _, c := range []struct {
			at, service string
			want        result
			says        string
		}{
			{l.Addr().String(), "", success, ""}, {l.Addr().String(), "sick", failure, "NOT_SERVING"},
			{l.Addr().String(), "other", failure, "unknown service"},
			{bareListener.Addr().String(), "", failure, "does not implement"},
		} {
			j := jobOf(t, c.at, v1.ProbeHandler{GRPC: &v1.GRPCAction{Service: &c.service, Mode: &mode}}, waitLimit)
			if got := j.act(t.Context(), Options{UserAgent: "kube-probe/1.2"}); got.result != c.want ||
				!strings.Contains(got.message, c.says) {
				t.Errorf("%s %q: %+v", mode, c.service, got)
			}
		}
		server.Stop()
		bare.Stop()
		j := jobOf(t, l.Addr().String(), v1.ProbeHandler{GRPC: &v1.GRPCAction{Mode: &mode}}, waitLimit)
		if got := j.act(t.Context(), Options{}); got.result != failure {
			t.Errorf("nobody listens: %+v", got)
		}
	}
}

// answers is a runtime that answers so, and notes the command.
type answers struct {
	cri.ExecResult
	err     error
	command []string
}

func (a *answers) ExecSync(_ context.Context, _ string, command []string, _ time.Duration) (cri.ExecResult, error) {
	a.command = command
	return a.ExecResult, a.err
}

// Only the command's own result counts; a runtime without an answer is not the application's failure.
func TestExec(t *testing.T) {
	timeout := status.Error(codes.DeadlineExceeded, "timeout 1s exceeded")
	for name, c := range map[string]struct {
		answers
		want result
		says string
	}{
		"success": {answers{}, success, ""},
		"failure": {answers{ExecResult: cri.ExecResult{ExitCode: 3, Stdout: []byte("out "), Stderr: []byte("err")}},
			failure, "out err"},
		"silent failure": {answers{ExecResult: cri.ExecResult{ExitCode: 3}}, failure, "code 3"},
		"timed out":      {answers{err: &cri.CallError{Answered: true, Err: timeout}}, failure, "timed out"},
		"no answer":      {answers{err: &cri.CallError{Err: timeout}}, unknown, ""},
		"not sent":       {answers{err: &cri.CallError{NotSent: true, Err: context.DeadlineExceeded}}, unknown, ""},
		"refused":        {answers{err: errors.New("no such container")}, unknown, "no such container"},
	} {
		j := jobOf(t, "", v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"echo", "$(WORD)"}}}, time.Second)
		if got := j.act(t.Context(), Options{CRI: &c.answers}); got.result != c.want || !strings.Contains(got.message, c.says) {
			t.Errorf("%s: %+v", name, got)
		}
		if fmt.Sprint(c.command) != "[echo said]" {
			t.Errorf("%s: it ran %v", name, c.command)
		}
	}
}

// FuzzResponse has an application answer whatever it likes: a probe ends, within bounds, with a word.
func FuzzResponse(f *testing.F) {
	for _, seed := range []string{
		"HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 302 Found\r\nLocation: http://[::1/\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\nx",
		"HTTP/1.1 999 \xff\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "\x00\x00\x00\x04\x00\x00\x00\x00\x00",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n", "",
		"HTTP/1.1 301 Moved\r\nLocation: /\r\nContent-Length: 0\r\n\r\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, response []byte) {
		l := listen(t)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = conn.Write(response)              // before any request
				_ = conn.(*net.TCPConn).CloseWrite()     // of a TCP listener
				_, _ = io.CopyN(io.Discard, conn, 1<<10) // the beginning of the request, if any
				_ = conn.Close()                         // and no more
			}
		}()
		for _, h := range []v1.ProbeHandler{web("/"), {GRPC: &v1.GRPCAction{}}} {
			got := jobOf(t, l.Addr().String(), h, 2*time.Second).act(t.Context(), Options{UserAgent: "kube-probe/1.2"})
			if len(got.message) > maxMessage+64 || got.result == "" || h.GRPC != nil && got.result == success {
				t.Errorf("%+v", got)
			}
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		<-done
	})
}

// TestWhoWasLate checks that a run beyond its timeout fails, even when closing its connection was slow. If the agent itself
// was delayed, the result is unknown.
func TestWhoWasLate(t *testing.T) {
	for after, want := range map[time.Duration]result{0: failure, 1500 * time.Millisecond: failure, 10 * time.Second: unknown} {
		synctest.Test(t, func(t *testing.T) {
			act := timed(func(ctx context.Context, _ Options, _ job) outcome {
				<-ctx.Done()
				time.Sleep(after)
				return outcome{result: failure, message: "no answer"}
			})
			if got := act(t.Context(), Options{}, job{timeout: time.Second}); got.result != want {
				t.Errorf("%v after its timeout: %+v", after, got)
			}
		})
	}
}

// TestHugeAnswers checks that output beyond the limit costs no memory.
func TestHugeAnswers(t *testing.T) {
	huge := bytes.Repeat([]byte("a"), 16<<20)
	j := jobOf(t, "", v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"x"}}}, time.Second)
	for code := range int32(2) {
		opts := Options{CRI: says{cri.ExecResult{ExitCode: code, Stdout: huge, Stderr: huge}}}
		if n := testing.Benchmark(func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				execProbe(b.Context(), opts, j)
			}
		}).AllocedBytesPerOp(); n > 64<<10 {
			t.Errorf("code %d: %d bytes are allocated", code, n)
		}
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		w.Header().Set("X-Huge", string(huge[:1<<20]))
	}))
	defer s.Close()
	if got := httpProbe(t.Context(), Options{}, jobOf(t, s.Listener.Addr().String(), web("/"),
		waitLimit)); got.result != failure || !strings.Contains(got.message, "headers") {
		t.Errorf("a megabyte of headers: %+v", got)
	}
}

type says struct{ result cri.ExecResult }

func (s says) ExecSync(context.Context, string, []string, time.Duration) (cri.ExecResult, error) {
	return s.result, nil
}

// TestHTTP2: over TLS it is spoken where the application offers it, and may be all that it speaks.
func TestHTTP2(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			w.WriteHeader(http.StatusHTTPVersionNotSupported)
		}
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	h := web("/")
	h.HTTPGet.Scheme = v1.URISchemeHTTPS
	if got := httpProbe(t.Context(), Options{}, jobOf(t, s.Listener.Addr().String(), h, waitLimit)); got.result != success {
		t.Errorf("%+v", got)
	}
}

// TestNoQueryInAnError: it may hold a secret.
func TestNoQueryInAnError(t *testing.T) {
	for _, path := range []string{"/drain?token=secret", "//other/drain?token=secret", "/%zz?token=secret"} {
		for _, host := range []string{"my host", "127.0.0.1"} {
			h := web(path)
			h.HTTPGet.Host = host
			got := httpProbe(t.Context(), Options{}, jobOf(t, "127.0.0.1:1", h, waitLimit))
			if got.result == success || strings.Contains(got.message, "secret") {
				t.Errorf("%s at %s: %+v", path, host, got)
			}
		}
	}
}
