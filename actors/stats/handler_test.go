package stats

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// unsent is a body that its client never sends.
type unsent struct{ t *testing.T }

func (u unsent) Read([]byte) (int, error) {
	u.t.Error("the body was waited for")
	return 0, io.EOF
}

// A request's parameters are in its URL; its body is not read.
func TestTheBodyOfARequestIsNotRead(t *testing.T) {
	r := newRig(t, pod("web", containerID1))
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/stats/summary?only_cpu_and_memory=maybe", unsent{t})
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	Handler(r.Collector, nil).ServeHTTP(w, req)
	if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "neither true nor false") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestSpec(t *testing.T) {
	r := newRig(t)
	for _, path := range []string{"/spec", "/spec/"} {
		var machine struct {
			Cores  int    `json:"num_cores"`
			Memory uint64 `json:"memory_capacity"`
		}
		w := get(t, Handler(r.Collector, nil), path)
		if err := json.Unmarshal(w.Body.Bytes(), &machine); err != nil || machine.Cores < 1 || machine.Memory == 0 {
			t.Errorf("%s: %d %s, %v", path, w.Code, w.Body, err)
		}
	}
	if w := get(t, Handler(r.Collector, nil), "/spec/more"); w.Code != http.StatusNotFound {
		t.Errorf("%d", w.Code)
	}
}

// An answer is compressed for clients that accept it, with the same content.
func TestAnswersArePacked(t *testing.T) {
	h := Handler(newRig(t, pod("web", containerID1)).Collector, nil)
	for takes, packed := range map[string]bool{"": false, "identity": false, "deflate, gzip": true, "gzip;q=0": false,
		"gzip;q=0.5": true, "gzip; q=0.0, br": false} {
		r := mustRequest(t, "/metrics/resource")
		r.Header.Set("Accept-Encoding", takes)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if got := w.Header().Get("Content-Encoding") == "gzip"; got != packed {
			t.Errorf("%q: packed is %t", takes, got)
			continue
		}
		body := io.Reader(w.Body)
		if packed {
			var err error
			if body, err = gzip.NewReader(body); err != nil {
				t.Fatal(err)
			}
		}
		text, err := io.ReadAll(body)
		if err != nil {
			t.Fatal(err)
		}
		sample(t, families(t, string(text)), "resource_scrape_error", nil)
	}
}
