package server

import (
	"net/http"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// clientRate and clientBurst are how many requests one client may make of a port, a second and at once. All that people do
	// with kubectl comes from one client, the API server.
	clientRate, clientBurst = 250, 1000
	// maxClients is how many clients a port remembers.
	maxClients = 4096
	// forgetEvery is the least time between two looks for clients that need not be remembered.
	forgetEvery = time.Second
)

// clients bounds how often each client asks, before anybody is asked who it is: reviews of tokens cost the API server work. A
// client is its address; of IPv6 the first 64 bits, since the others are its own to choose.
type clients struct {
	mu    sync.Mutex
	each  map[netip.Prefix]*rate.Limiter
	swept time.Time
}

func newClients() *clients { return &clients{each: map[netip.Prefix]*rate.Limiter{}} }

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

// allow counts a request. Where there are more clients than are remembered, those that come last are not counted: an attacker of
// many addresses must not keep out others, and the limit of connections holds for all.
func (c *clients) allow(remote string, now time.Time) bool {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return true // a unix socket
	}
	address := at.Addr().Unmap().WithZone("")
	bits := address.BitLen()
	if address.Is6() {
		bits = 64
	}
	key, err := address.Prefix(bits)
	if err != nil {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.each[key]
	if l == nil {
		if len(c.each) >= maxClients && now.Sub(c.swept) >= forgetEvery {
			c.swept = now
			for of, l := range c.each {
				if l.TokensAt(now) >= clientBurst { // as one that never asked
					delete(c.each, of)
				}
			}
		}
		if len(c.each) >= maxClients {
			return true
		}
		l = rate.NewLimiter(clientRate, clientBurst)
		c.each[key] = l
	}
	return l.AllowN(now, 1)
}
