package server

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// A client over the rate is rejected, and no other is.
func TestEachClientHasARate(t *testing.T) {
	c, now := newClients(), time.Unix(1000, 0)
	for range clientBurst {
		if !c.allow("192.0.2.1:1000", now) {
			t.Fatal("refused before the limit")
		}
	}
	for remote, want := range map[string]bool{
		"192.0.2.1:2000": false, "[::ffff:192.0.2.1]:3": false, "192.0.2.2:1000": true, "@": true,
	} {
		if got := c.allow(remote, now); got != want {
			t.Errorf("%s: %v", remote, got)
		}
	}
	if now = now.Add(time.Second / clientRate); !c.allow("192.0.2.1:1", now) || c.allow("192.0.2.1:1", now) {
		t.Error("the rate is another")
	}
	for i := range clientBurst + 1 { // one machine, with any number of addresses
		if got, want := c.allow(fmt.Sprintf("[2001:db8::%x]:1", i), now), i < clientBurst; got != want {
			t.Fatalf("request %d: %v", i, got)
		}
	}
}

// The number of remembered clients is limited, and the least recent ones are dropped.
func TestClientsAreForgotten(t *testing.T) {
	c, now := newClients(), time.Unix(1000, 0)
	at := func(i int) string { return fmt.Sprintf("10.%d.%d.1:1", i/256, i%256) }
	for range clientBurst {
		c.allow(at(9), now)
	}
	for i := range maxClients - 1 {
		c.allow(at(10+i), now)
	}
	if c.allow(at(9), now) {
		t.Error("one of those that asked last is forgotten")
	}
	for i := range maxClients {
		c.allow(at(10+i), now)
	}
	if !c.allow(at(9), now) || c.each.Len() != maxClients {
		t.Errorf("%d clients are remembered", c.each.Len())
	}
}

// The rejection comes before authentication.
func TestTheRateIsThatOfThePort(t *testing.T) {
	asked, c, proven := 0, newClients(), false
	h := c.limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }), func(*http.Request) bool { return proven })
	for later := time.Now().Add(time.Hour); c.allow("192.0.2.1:1", later); { // the address of httptest's requests
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/pods", nil))
	if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" || asked > 0 {
		t.Errorf("%d, %d were served", w.Code, asked)
	}
	proven = true // the API server is not affected by other clients at its address
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/pods", nil))
	if asked != 1 {
		t.Errorf("%d requests of a client that is known were served", asked)
	}
}
