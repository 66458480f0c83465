package server

import (
	"net/http"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/lru"

	"github.com/playlet-dev/playlet/actors/internal/shares"
)

const (
	// clientRate and clientBurst limit the requests of one client to a port, per second and at once. All users of kubectl are one
	// client, the API server.
	clientRate, clientBurst = 250, 1000
	// maxClients limits the remembered clients of a port, the most recent ones. An attacker with more addresses is counted afresh
	// but shuts out no other client, and the limit of connections applies to all.
	maxClients = 4096
)

// clients limits the rate of requests per client before authentication: reviews of tokens cost the API server work. A client is
// its address, see shares.Address.
type clients struct{ each *lru.Cache } // *rate.Limiter by netip.Prefix

func newClients() *clients { return &clients{lru.New(maxClients)} }

// limit rejects excess requests with 429, except from authenticated clients; proven may be nil.
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
