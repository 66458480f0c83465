package apiclient

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

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
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	clients, err := New(Options{Config: func() *rest.Config {
		return &rest.Config{Host: server.URL, BearerToken: "word", TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
	}, UserAgent: "playlet/test", QPS: 50, Burst: 100,
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
		for _, reviews := range []kubernetes.Interface{clients.TokenReviews, clients.AccessReviews} {
			if _, err := reviews.CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := clients.Events.CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if len(from) != 5 || !agents["playlet/test"] || len(agents) != 1 ||
		!accepts["application/vnd.kubernetes.protobuf,application/json"] {
		t.Errorf("connections %v, agents %v, accepts %v", from, agents, accepts)
	}
}
