package apiclient

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// kubeconfig writes one for the server, with a token.
func kubeconfig(t *testing.T, server *httptest.Server, token string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:  map[string]*clientcmdapi.Cluster{"c": {Server: server.URL, CertificateAuthorityData: ca}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"u": {Token: token}},
		Contexts:  map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}}, CurrentContext: "x",
	}, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// A lease must not wait for anything else: each client has a connection of its own.
func TestEachClientHasItsOwnConnection(t *testing.T) {
	var mu sync.Mutex
	from, agents, accepts := map[string]bool{}, map[string]bool{}, map[string]bool{}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		from[r.RemoteAddr], agents[r.UserAgent()], accepts[r.Header.Get("Accept")] = true, true, true
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"Node","apiVersion":"v1","metadata":{"name":"n"}}`))
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	clients, err := New(Options{Kubeconfig: kubeconfig(t, server, "word"), UserAgent: "playlet/test", QPS: 50, Burst: 100,
		EventQPS: 50, EventBurst: 100})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := clients.Main.CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := clients.Heartbeat.CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := clients.Events.CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if len(from) != 3 || !agents["playlet/test"] || len(agents) != 1 ||
		!accepts["application/vnd.kubernetes.protobuf,application/json"] {
		t.Errorf("connections %v, agents %v, accepts %v", from, agents, accepts)
	}
}

func TestAKubeconfigThatCannotBeUsedIsNamed(t *testing.T) {
	dir := t.TempDir()
	broken := filepath.Join(dir, "broken")
	if err := os.WriteFile(broken, []byte("users:\n- name: x\n  user: {token: s3cr3t, client-certificate-data: '%%%'}\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{filepath.Join(dir, "none"): "is not there", broken: "cannot be used"} {
		_, err := New(Options{Kubeconfig: path})
		if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%s: %v", path, err)
		}
	}
}
