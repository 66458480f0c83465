package agent

import (
	"crypto/tls"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/playlet-dev/playlet/cmd/playlet/agent/locks"
	"github.com/playlet-dev/playlet/cri/sim"
)

// Nothing is written by a process that another one's lock keeps out: its certificates would be the other's.
func TestTheLockIsTakenBeforeCertificatesAreMade(t *testing.T) {
	r := newRig(t, sim.Options{}, "--enable-server", "--anonymous-auth", "--authorization-mode=AlwaysAllow")
	node := r.node()
	lock, err := locks.Take(node, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := newAgent(node, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "another playlet runs") {
		t.Errorf("error %v", err)
	}
	if _, err := os.Stat(node.CertDir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("certificates were made: %v", err)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
}

// Pods do not depend on the certificate of port 10250, which opens once there is one; a file that the configuration names has to
// be there.
func TestWithoutAServingCertificateThePortStaysClosed(t *testing.T) {
	r := newRig(t, sim.Options{}, "--enable-server", "--anonymous-auth", "--authorization-mode=AlwaysAllow", "--port="+freePort(t))
	node := r.node()
	if err := os.WriteFile(node.CertDir, nil, 0o600); err != nil { // no folder
		t.Fatal(err)
	}
	a := r.prepare()
	if err := a.listeners.Open(t.Context()); err == nil || !strings.Contains(err.Error(), "there is no serving certificate: ") {
		t.Errorf("error %v", err)
	}
	ask := func() error {
		insecure := &tls.Config{InsecureSkipVerify: true}
		conn, err := tls.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(node.Kubelet.Port))), insecure)
		if err != nil {
			return err
		}
		return conn.Close()
	}
	if err := ask(); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("the port is not closed: %v", err)
	}
	if err := errors.Join(os.Remove(node.CertDir), a.listeners.Open(t.Context()), ask()); err != nil { // as the actor does
		t.Errorf("with a folder for certificates: %v", err)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	node.Kubelet.TLSCertFile, node.Kubelet.TLSPrivateKeyFile = "/none.crt", "/none.key"
	if _, err := openGuard(node, nil, &nodeAddresses{node: node}, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "/none.crt") {
		t.Errorf("error %v", err)
	}
}

// freePort returns an unused port of the loopback address.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err := errors.Join(err, l.Close()); err != nil {
		t.Fatal(err)
	}
	return port
}
