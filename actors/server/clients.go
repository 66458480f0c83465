package server

import (
	"net/http"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/lru"

	"github.com/playlet-dev/playlet/actors/internal/shares"
)

const (
	// clientRate and clientBurst are how many requests one client may make of a port, a second and at once. All that people do
	// with kubectl comes from one client, the API server.
	clientRate, clientBurst = 250, 1000
	// maxClients is how many clients a port remembers: those that asked last. An attacker of more addresses is counted anew, but
	// keeps out nobody else, and the limit of connections holds for all.
	maxClients = 4096
)

// clients bounds how often each client asks, before anybody is asked who it is: reviews of tokens cost the API server work. A
// client is its address, see shares.Address.
type clients struct{ each *lru.Cache } // *rate.Limiter by netip.Prefix

func newClients() *clients { return &clients{lru.New(maxClients)} }

// limit refuses with 429 what comes too often, but for who has proven who it is; nil: nobody has.
func (c *clients) limit(next http.Handler, proven func(*http.Request) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !c.allow(r.RemoteAddr, time.Now()) && (proven == nil || !proven(r)) {
			w.Header().Set("Retry-After", "1")
			http.Error(w, "too many requests from this address", http.StatusTooManyRequests)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// allow counts a request.
func (c *clients) allow(remote string, now time.Time) bool {
	key, ok := shares.Address(remote)
	if !ok {
		return true // a unix socket
	}
	l, known := c.each.Get(key)
	if !known {
		l = rate.NewLimiter(clientRate, clientBurst)
		c.each.Add(key, l)
	}
	return l.(*rate.Limiter).AllowN(now, 1)
}
