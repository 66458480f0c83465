package apiclient

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// A server that asks for a rest of years is asked again within half a minute. Shorter rests stay, and dates are ignored by
// client-go.
func TestBounds_OfARest(t *testing.T) {
	for header, want := range map[string]string{"": "", "1": "1", "86400": "30", "-5": "0", "9223372036854775807": "30",
		"Wed, 21 Oct 2099 07:28:00 GMT": "Wed, 21 Oct 2099 07:28:00 GMT"} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if header != "" {
				w.Header().Set("Retry-After", header)
			}
			w.WriteHeader(http.StatusTooManyRequests)
		}))
		a, err := (&http.Client{Transport: bounds{http.DefaultTransport}}).Get(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		_ = a.Body.Close()
		if got := a.Header.Get("Retry-After"); got != want {
			t.Errorf("%q becomes %q, want %q", header, got, want)
		}
		s.Close()
	}
}

// endless is a server with answers that do not end.
func endless(t *testing.T) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","message":"`)
		for line := strings.Repeat("x", 1<<20); ; {
			if _, err := io.WriteString(w, line); err != nil {
				return
			}
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// An answer without end is an error, and a watch has no limit.
func TestBounds_OfAnAnswer(t *testing.T) {
	server := endless(t)
	client := &http.Client{Transport: bounds{http.DefaultTransport}}
	for query, fails := range map[string]bool{"": true, "?watch=false": true, "?watch=true": false, "?watch=1": false} {
		a, err := client.Get(server.URL + query)
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.CopyN(io.Discard, a.Body, maxAnswer+1)
		_ = a.Body.Close()
		if fails != (err != nil) || fails && (n != maxAnswer || !strings.Contains(err.Error(), "longer than 256 MiB")) {
			t.Errorf("%s: read %d bytes, %v", query, n, err)
		}
	}
}

// An object is absent if the API server itself answers NotFound.
func TestAbsent(t *testing.T) {
	for page, want := range map[string]bool{
		"404 page not found\n": false, "": false,
		`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"details":{"name":"p","kind":"pods"}}`: true,
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if want {
				w.Header().Set("Content-Type", "application/json")
			}
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, page)
		}))
		client, err := kubernetes.NewForConfig(&rest.Config{Host: s.URL})
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.CoreV1().Pods("ns").Get(t.Context(), "p", metav1.GetOptions{})
		if !apierrors.IsNotFound(err) || Absent(err) != want {
			t.Errorf("%q: %v, absent %v, want %v", page, err, Absent(err), want)
		}
		s.Close()
	}
}

// The clients have the bounds.
func TestBounds_AreOfAllClients(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "86400")
		if strings.HasSuffix(r.URL.Path, "/text") {
			http.Error(w, "no", http.StatusConflict) // client-go does not repeat it
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusConflict)
		_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","code":409,"message":%q}`, strings.Repeat("x", 1<<20))
	}))
	defer s.Close()
	clients, err := New(Options{Config: func() *rest.Config { return &rest.Config{Host: s.URL} }, QPS: 50, Burst: 100, EventQPS: 50,
		EventBurst: 100})
	if err != nil {
		t.Fatal(err)
	}
	_, err = clients.Main.CoreV1().Pods("ns").Get(t.Context(), "p", metav1.GetOptions{})
	if !apierrors.IsConflict(err) {
		t.Fatalf("%.100s", err)
	}
	if text := Explain(err, "n"); len(text) > 3000 {
		t.Errorf("an explanation of %d bytes: %.100s", len(text), text)
	}
	_, err = clients.Main.CoreV1().Pods("ns").Get(t.Context(), "text", metav1.GetOptions{})
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details.RetryAfterSeconds != int32(longestRest.Seconds()) {
		t.Errorf("the bounds are not applied: %+v", err)
	}
}
