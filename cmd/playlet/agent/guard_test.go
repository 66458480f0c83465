package agent

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/cri/sim"
)

// Nothing is written by a process that another one's lock keeps out: its certificates would be the other's.
func TestTheLockIsTakenBeforeCertificatesAreMade(t *testing.T) {
	r := newRig(t, sim.Options{}, "--enable-server", "--anonymous-auth", "--authorization-mode=AlwaysAllow")
	node := r.node()
	lock, err := prepareFolders(node)
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

// Pods do not depend on the certificate of port 10250; a file that the configuration names has to be there.
func TestWithoutAServingCertificateThePortStaysClosed(t *testing.T) {
	r := newRig(t, sim.Options{}, "--enable-server", "--anonymous-auth", "--authorization-mode=AlwaysAllow")
	node := r.node()
	if err := os.WriteFile(node.CertDir, nil, 0o600); err != nil { // no folder
		t.Fatal(err)
	}
	g, err := openGuard(node, nil, &nodeAddresses{node: node}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if e := g.exposure; g.tls != nil || e.Address != "" || e.Narrowed != "" || !strings.HasPrefix(e.Closed, "there is no serving certificate: ") {
		t.Errorf("%+v", e)
	}
	g.close()
	node.Kubelet.TLSCertFile, node.Kubelet.TLSPrivateKeyFile = "/none.crt", "/none.key"
	if _, err := openGuard(node, nil, &nodeAddresses{node: node}, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "/none.crt") {
		t.Errorf("error %v", err)
	}
}
