package identity

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/certificate"

	"github.com/playlet-dev/playlet/actors/internal/suspend"
	"github.com/playlet-dev/playlet/supervisors/supervisortest"
)

// whoami is the name by which the API server knows the client.
func whoami(ctx context.Context, c kubernetes.Interface) (string, error) {
	node, err := c.CoreV1().Nodes().Get(ctx, "any", metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return node.Name, nil
}

// A node with nothing but a bootstrap token gets its certificate, keeps it in the kubelet's files, and asks for no other.
func TestBootstrapFromNothing(t *testing.T) {
	api, folder := newAPIServer(t), t.TempDir()
	o := ClientOptions{Kubeconfig: filepath.Join(folder, "etc/kubelet.conf"), Bootstrap: api.kubeconfig(t, "bootstrap"),
		CertDir: filepath.Join(folder, "pki"), Rotate: true}
	c := open(t, o)
	client := dial(t, c)
	if _, err := whoami(t.Context(), client); err == nil || !strings.Contains(err.Error(), "no client certificate") {
		t.Errorf("before: %v", err)
	}
	c.ensure()
	asked := api.awaitRequest(t, 1)
	if asked.Subject.String() != "CN=system:node:n1,O=system:nodes" {
		t.Errorf("asked for %s", asked.Subject)
	}
	eventually(t, "the request is told", func() bool { return c.state()[0].Request != nil })
	csr, _ := api.request("csr-1")
	if csr.Spec.SignerName != "kubernetes.io/kube-apiserver-client-kubelet" || api.askers[0] != "Bearer bootstrap" {
		t.Errorf("%s asked %s", api.askers[0], csr.Spec.SignerName)
	}
	if _, err := whoami(t.Context(), client); err == nil || !strings.Contains(err.Error(), "kubectl certificate approve csr-1") {
		t.Errorf("waiting: %v", err)
	}
	api.approve(t, 1)
	eventually(t, "the API server knows the node", func() bool {
		name, _ := whoami(t.Context(), client)
		return name == "system:node:n1"
	})
	if s := c.state()[0]; s.Request != nil || s.Subject != "CN=system:node:n1,O=system:nodes" || len(problems(c.state(), time.Now())) != 0 {
		t.Errorf("state %+v", s)
	}
	if to, err := os.Readlink(filepath.Join(o.CertDir, "kubelet-client-current.pem")); err != nil || filepath.Dir(to) != o.CertDir {
		t.Errorf("%q %v", to, err)
	}
	for path, mode := range map[string]os.FileMode{o.Kubeconfig: 0o600, filepath.Join(o.CertDir, "kubelet-client-current.pem"): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v %v", path, info, err)
		}
	}

	// A pair that cannot be read is asked for again.
	broken := o
	broken.CertDir = t.TempDir()
	if err := os.WriteFile(filepath.Join(broken.CertDir, "kubelet-client.crt"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(broken.CertDir, "kubelet-client.key"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	broken.Kubeconfig = filepath.Join(broken.CertDir, "none")
	if state := open(t, broken).state(); !state[0].NotAfter.IsZero() {
		t.Errorf("state %+v", state)
	}

	// The next start, with the bootstrap's file gone, needs nothing of it; nor would a kubelet.
	o.Bootstrap = filepath.Join(folder, "gone")
	again := open(t, o)
	again.ensure()
	if name, err := whoami(t.Context(), dial(t, again)); err != nil || name != "system:node:n1" {
		t.Errorf("the next start: %q %v", name, err)
	}
	if len(api.requests) != 1 {
		t.Errorf("%d requests", len(api.requests))
	}
}

// The file of the API server's authorities is read again, and never leaves the client without any.
func TestNewAuthoritiesOfTheServerAreTrusted(t *testing.T) {
	api, folder := newAPIServer(t), t.TempDir()
	var shown atomic.Pointer[tls.Certificate]
	serve := func() (authorities []byte) {
		chain, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		pair, err := tls.X509KeyPair(chain, key)
		if err != nil {
			t.Fatal(err)
		}
		shown.Store(&pair)
		return chain
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(api.serve))
	server.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return &tls.Config{Certificates: []tls.Certificate{*shown.Load()}, ClientAuth: tls.RequestClientCert}, nil
	}}
	server.StartTLS()
	t.Cleanup(server.Close)
	file, pair := filepath.Join(folder, "ca.crt"), filepath.Join(folder, "client.pem")
	trust := func(text []byte) {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	trust(serve())
	api.clientPair(t, pair, time.Now().Add(-time.Minute), time.Now().Add(time.Hour))
	kubeconfig := api.kubeconfig(t, "", func(c *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
		c.Server, c.CertificateAuthority, c.CertificateAuthorityData = server.URL, file, nil
		u.ClientCertificate, u.ClientKey = pair, pair
	})
	config := open(t, ClientOptions{Kubeconfig: kubeconfig, CertDir: folder, Rotate: true}).Config()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	transport := config.Transport.(*rotatingTransport)
	t.Cleanup(transport.CloseIdleConnections)
	for _, text := range []string{"whole", "", "-----BEGIN CERTIFICATE-----\nhalf"} { // it is being written
		if text != "whole" {
			trust([]byte(text))
		}
		server.CloseClientConnections()
		transport.mu.Lock()
		transport.readAt = time.Time{}
		transport.mu.Unlock()
		if _, err := whoami(t.Context(), client); err != nil {
			t.Errorf("with the file %q: %v", text, err)
		}
	}
	next := serve()
	server.CloseClientConnections()
	if _, err := whoami(t.Context(), client); err == nil {
		t.Error("a server that no authority of the file vouches for was trusted")
	}
	trust(next)
	if _, err := whoami(t.Context(), client); err != nil {
		t.Errorf("with the new authorities: %v", err)
	}
}

// No request fails during a rotation: those in progress end on their connection, and later ones use the new certificate.
func TestARotationFailsNoRequest(t *testing.T) {
	api, folder := newAPIServer(t), t.TempDir()
	pair := filepath.Join(folder, "kubelet-client-current.pem")
	api.clientPair(t, pair, time.Now().Add(-time.Hour), time.Now().Add(time.Minute)) // due
	kubeconfig := filepath.Join(folder, "kubeconfig")
	token, err := load(api.kubeconfig(t, "none"))
	if err != nil {
		t.Fatal(err)
	}
	if err := writeKubeconfig(kubeconfig, token, pair); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(pair, filepath.Join(folder, "kubelet-client-2026.pem")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(folder, "kubelet-client-2026.pem"), pair); err != nil {
		t.Fatal(err)
	}
	c := open(t, ClientOptions{Kubeconfig: kubeconfig, CertDir: folder, Rotate: true})
	client := dial(t, c)

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var failed error
	var mu sync.Mutex
	var traffic sync.WaitGroup
	note := func(err error) {
		if err != nil && ctx.Err() == nil {
			mu.Lock()
			defer mu.Unlock()
			failed = errors.Join(failed, err)
		}
	}
	for range 4 {
		traffic.Go(func() {
			for ctx.Err() == nil {
				_, err := whoami(ctx, client)
				note(err)
			}
		})
	}
	slow := make(chan error, 1)
	traffic.Go(func() {
		_, err := client.CoreV1().Nodes().Get(t.Context(), "slow", metav1.GetOptions{})
		slow <- err
	})
	served := func(serial string) int {
		api.mu.Lock()
		defer api.mu.Unlock()
		return api.seen[serial]
	}
	eventually(t, "requests with the old certificate", func() bool { return served("99") > 100 })
	c.ensure()
	api.approve(t, 1)
	eventually(t, "requests with the new certificate", func() bool { return served("1") > 100 })
	before := served("99")
	eventually(t, "more of them", func() bool { return served("1") > 300 })
	if n := served("99") - before; n > 4 { // those in progress
		t.Errorf("%d requests with the old certificate", n)
	}
	close(api.block)
	note(<-slow)
	stop()
	traffic.Wait()
	if failed != nil {
		t.Errorf("failed: %v", failed)
	}
	if api.askers[0] != "system:node:n1" {
		t.Errorf("%s asked", api.askers[0])
	}
}

// A node with an expired certificate starts the bootstrap again.
func TestAnExpiredCertificateIsReplacedByTheBootstrap(t *testing.T) {
	api, folder := newAPIServer(t), t.TempDir()
	pair := filepath.Join(folder, "kubelet-client-current.pem")
	api.clientPair(t, pair, time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour))
	kubeconfig := filepath.Join(folder, "kubeconfig")
	bootstrap := api.kubeconfig(t, "bootstrap")
	server, err := load(bootstrap)
	if err != nil {
		t.Fatal(err)
	}
	if err := writeKubeconfig(kubeconfig, server, pair); err != nil {
		t.Fatal(err)
	}
	alone := open(t, ClientOptions{Kubeconfig: kubeconfig, CertDir: folder, Rotate: false})
	if p := problems(alone.state(), time.Now()); len(p) != 1 || !strings.Contains(p[0], "the client certificate expired on ") {
		t.Errorf("without a bootstrap: %q", p)
	}
	if err := os.Rename(pair, filepath.Join(folder, "kubelet-client-2026.pem")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(folder, "kubelet-client-2026.pem"), pair); err != nil {
		t.Fatal(err)
	}
	// Not to be rotated: one certificate is asked for, and no more.
	c := open(t, ClientOptions{Kubeconfig: kubeconfig, Bootstrap: bootstrap, CertDir: folder})
	c.ensure()
	api.approve(t, 1)
	client := dial(t, c)
	eventually(t, "the API server knows the node", func() bool {
		name, _ := whoami(t.Context(), client)
		return name == "system:node:n1"
	})
	if api.askers[0] != "Bearer bootstrap" {
		t.Errorf("%s asked", api.askers[0])
	}
	if c.ctx.Err() == nil {
		t.Error("it goes on asking, and rotateCertificates is off")
	}
}

// A token is used as it is, whatever else is configured.
func TestATokenIsUsedAsItIs(t *testing.T) {
	api := newAPIServer(t)
	c := open(t, ClientOptions{Kubeconfig: api.kubeconfig(t, "word"), Bootstrap: "/nowhere", CertDir: t.TempDir(), Rotate: true})
	c.ensure()
	config := c.Config()
	if config.BearerToken != "word" || config.Transport != nil || c.state() != nil {
		t.Errorf("%v %v", config, c.state())
	}
	transport := &net.Dialer{}
	config.Dial = transport.DialContext
}

// An exec plugin is asked again once the API server does not know its token any more.
func TestAnExecPluginIsAskedAgain(t *testing.T) {
	api, token := newAPIServer(t), filepath.Join(t.TempDir(), "token")
	write(t, token, "one")
	const says = `{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"%s"}}`
	kubeconfig := api.kubeconfig(t, "", func(_ *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) {
		user.Exec = &clientcmdapi.ExecConfig{APIVersion: "client.authentication.k8s.io/v1", Command: "/bin/sh",
			Args: []string{"-c", "printf '" + says + "' $(cat " + token + ")"}, InteractiveMode: clientcmdapi.NeverExecInteractiveMode}
	})
	client := dial(t, open(t, ClientOptions{Kubeconfig: kubeconfig, CertDir: t.TempDir(), Rotate: true}))
	if name, err := whoami(t.Context(), client); name != "Bearer one" {
		t.Fatalf("%q %v", name, err)
	}
	write(t, token, "two")
	api.mu.Lock()
	api.refused = "Bearer one"
	api.mu.Unlock()
	eventually(t, "the new token is shown", func() bool {
		name, _ := whoami(t.Context(), client)
		return name == "Bearer two"
	})
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// refusingServer keeps the credentials of requests, and refuses all.
type refusingServer []string

func (s *refusingServer) RoundTrip(r *http.Request) (*http.Response, error) {
	*s = append(*s, r.Header.Get("Authorization"))
	return nil, errors.New("nobody is there")
}

// A token's file is read again within a minute.
func TestATokensFileIsReadAgain(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	kubeconfig := newAPIServer(t).kubeconfig(t, "", func(c *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) {
		c.Server, c.CertificateAuthorityData, user.TokenFile = "https://api.example", nil, token
	})
	synctest.Test(t, func(t *testing.T) {
		write(t, token, "one")
		config, got := open(t, ClientOptions{Kubeconfig: kubeconfig, CertDir: t.TempDir(), Rotate: true}).Config(), &refusingServer{}
		config.Transport = got
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		ask := func() { _, _ = whoami(t.Context(), client) } // it is refused
		ask()
		write(t, token, "two")
		time.Sleep(time.Minute)
		ask()
		if !slices.Equal(*got, []string{"Bearer one", "Bearer two"}) {
			t.Errorf("shown: %q", *got)
		}
	})
}

// The written kubeconfig has the same API server settings as the bootstrap kubeconfig.
func TestTheWrittenKubeconfigKeepsTheServer(t *testing.T) {
	dir := t.TempDir()
	pair := filepath.Join(dir, "pair.pem")
	api := newAPIServer(t)
	api.clientPair(t, pair, time.Now(), time.Now().Add(time.Hour))
	before, err := load(api.kubeconfig(t, "word", func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
		c.ProxyURL, c.TLSServerName, c.DisableCompression = "http://proxy.example:3128", "kubernetes", true
	}))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "kubeconfig")
	if err := writeKubeconfig(path, before, pair); err != nil {
		t.Fatal(err)
	}
	after, err := load(path)
	if err != nil {
		t.Fatal(err)
	}
	if after.Proxy == nil {
		t.Fatal("the proxy is lost")
	}
	if proxy, err := after.Proxy(&http.Request{}); err != nil || proxy.String() != "http://proxy.example:3128" {
		t.Errorf("proxy %v, %v", proxy, err)
	}
	if after.Host != before.Host || after.ServerName != "kubernetes" || !after.DisableCompression || after.BearerToken != "" ||
		!bytes.Equal(after.CAData, before.CAData) || after.CertFile != pair {
		t.Errorf("%v", after)
	}
}

func TestAKubeconfigThatCannotBeUsedIsNamed(t *testing.T) {
	dir := t.TempDir()
	broken, none := filepath.Join(dir, "broken"), filepath.Join(dir, "none")
	if err := os.WriteFile(broken, []byte("users:\n- name: x\n  user: {token: s3cr3t, client-certificate-data: '%%%'}\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		kubeconfig, bootstrap string
		want                  []string
	}{
		{none, "", []string{"--kubeconfig: " + none + " is not there"}},
		{broken, "", []string{"--kubeconfig: " + broken + " cannot be used"}},
		{none, broken, []string{"--kubeconfig: " + none + " is not there", "--bootstrap-kubeconfig: " + broken + " cannot be used"}},
	} {
		_, err := NewClient(ClientOptions{Kubeconfig: c.kubeconfig, Bootstrap: c.bootstrap, Log: slog.New(slog.DiscardHandler)})
		if err == nil || strings.Contains(err.Error(), "s3cr3t") {
			t.Fatalf("%v: %v", c, err)
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%v: %v", c, err)
			}
		}
	}
}

// After the clock was set, the rotation is planned again: the library sleeps by the monotonic clock until a time that it computed
// from the wrong one.
func TestRotation_ClockSet(t *testing.T) {
	for name, c := range map[string]struct {
		passed, by time.Duration
		again      bool
	}{
		"set forward":    {replanRest, time.Hour, true},
		"set back":       {replanRest, -time.Hour, true},
		"not set":        {24 * time.Hour, 0, false},
		"set by little":  {replanRest, suspend.ClockSet - time.Second, false},
		"set soon after": {time.Minute, time.Hour, true},
	} {
		api, folder := newAPIServer(t), t.TempDir()
		pair := filepath.Join(folder, "kubelet-client-current.pem")
		api.clientPair(t, pair, time.Now(), time.Now().Add(24*time.Hour)) // due in 17 hours
		token, err := load(api.kubeconfig(t, "none"))
		if err != nil {
			t.Fatal(err)
		}
		kubeconfig := filepath.Join(folder, "kubeconfig")
		if err := writeKubeconfig(kubeconfig, token, pair); err != nil {
			t.Fatal(err)
		}
		client := open(t, ClientOptions{Kubeconfig: kubeconfig, CertDir: folder, Rotate: true})
		client.ensure()
		client.ensure()
		api.clientPair(t, pair, time.Now().Add(-24*time.Hour), time.Now().Add(time.Hour)) // due by the right clock
		client.manager.mu.Lock()
		was := client.manager.manager
		client.manager.now = func() time.Time { return supervisortest.SetClock(time.Now().Add(c.passed), c.by) }
		client.manager.mu.Unlock()
		client.ensure()
		client.ensure()
		if again := client.manager.manager != was; again != c.again {
			t.Errorf("%s: planned again: %t, want %t", name, again, c.again)
		}
		if c.again {
			api.awaitRequest(t, 1)
		}
	}
}

// After the clock was set beyond the end of the certificate, another one is requested at once. An older certificate, which the
// kubeconfig holds, does not replace the expired one: the clock may be set back.
func TestRotation_ClockSetBeyondTheEnd(t *testing.T) {
	api, folder := newAPIServer(t), t.TempDir()
	older, pair := filepath.Join(folder, "older.pem"), filepath.Join(folder, "kubelet-client-current.pem")
	api.clientPair(t, older, time.Now(), time.Now().Add(23*time.Hour))
	inline, err := os.ReadFile(older)
	if err != nil {
		t.Fatal(err)
	}
	_, key := pem.Decode(inline)
	bootstrap, kubeconfig := api.kubeconfig(t, "none"), filepath.Join(folder, "kubeconfig")
	config, err := clientcmd.LoadFromFile(bootstrap)
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range config.AuthInfos {
		*user = clientcmdapi.AuthInfo{ClientCertificateData: inline, ClientKeyData: key}
	}
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	stored := filepath.Join(folder, "kubelet-client-1.pem") // as the library keeps it
	api.clientPair(t, stored, time.Now(), time.Now().Add(24*time.Hour))
	if err := os.Symlink(stored, pair); err != nil {
		t.Fatal(err)
	}
	client := open(t, ClientOptions{Kubeconfig: kubeconfig, Bootstrap: bootstrap, CertDir: folder, Rotate: true})
	client.ensure()
	api.clientPair(t, stored, time.Now().Add(-24*time.Hour), time.Now().Add(-time.Hour)) // expired by the right clock
	expired, err := os.ReadFile(pair)
	if err != nil {
		t.Fatal(err)
	}
	client.manager.mu.Lock()
	client.manager.now = func() time.Time { return supervisortest.SetClock(time.Now().Add(time.Minute), 48*time.Hour) }
	client.manager.mu.Unlock()
	client.ensure()
	if is, err := os.ReadFile(pair); err != nil || string(is) != string(expired) {
		t.Errorf("the store has another certificate, %v", err)
	}
	api.awaitRequest(t, 1)
}

// The first new plan is made at once, later ones after a rest, unless there is no valid certificate.
func TestRotation_PlanRests(t *testing.T) {
	for name, c := range map[string]struct {
		manager certificate.Manager
		want    int
	}{"valid": {validManager{}, 2}, "expired": {expiredManager{}, 3}} {
		plans, at, by := 0, time.Now(), time.Duration(0)
		s := &steadyManager{ctx: t.Context(), log: slog.New(slog.DiscardHandler),
			now: func() time.Time { return supervisortest.SetClock(at, by) },
			build: func(_ context.Context, again bool) (certificate.Manager, error) {
				if again != (plans > 0) {
					t.Errorf("%s: plan %d: again %t", name, plans, again)
				}
				plans++
				return c.manager, nil
			}}
		if err := s.plan(); err != nil {
			t.Fatal(err)
		}
		s.Start()
		for range 2 {
			at, by = at.Add(time.Second), by+time.Hour
			s.Start()
		}
		if plans != c.want {
			t.Errorf("%s: got %d plans, want %d", name, plans, c.want)
		}
		at = at.Add(replanRest)
		if s.Start(); plans != 3 {
			t.Errorf("%s: got %d plans after the rest, want 3", name, plans)
		}
	}
}

// expiredManager is the library's manager of an expired certificate.
type expiredManager struct{ certificate.Manager }

func (expiredManager) Start()                    {}
func (expiredManager) Current() *tls.Certificate { return nil }

// validManager is the library's manager of a valid certificate.
type validManager struct{ certificate.Manager }

func (validManager) Start()                    {}
func (validManager) Current() *tls.Certificate { return &tls.Certificate{} }
