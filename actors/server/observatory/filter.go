package observatory

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

const (
	// cookieName is the cookie that a browser gets for the token, and cookieTime its lifetime. Cookies are shared by ports: a
	// browser sends it to any server on the same host, so it is derived from the token and does not contain it.
	cookieName = "playlet-observatory"
	cookieTime = 12 * time.Hour
	// SocketHost is the host in requests of playlet's own commands on the admin socket.
	SocketHost = "playlet"
)

const (
	noToken = "the web page needs its token: open the address that `playlet observatory` prints " +
		"(run it as root on this node)"
	wrongToken = "this is not the web page's token: `playlet observatory` prints the address with the right one"
)

// tokenFilter admits clients with the token, and rejects requests of other sites.
type tokenFilter struct {
	conf Config
	next http.Handler
	now  func() time.Time
}

func (g *tokenFilter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	harden(w.Header())
	if text := foreign(r, g.hosts); text != "" {
		http.Error(w, text, http.StatusForbidden)
		return
	}
	token := g.conf.Token.value()
	if given := r.URL.Query().Get("token"); given != "" && r.URL.Path == "/" && r.Method == http.MethodGet {
		if !equal(given, token) {
			refuse(w, wrongToken)
			return
		}
		http.SetCookie(w, &http.Cookie{
			Name: cookieName, Value: g.cookie(token), Path: "/", MaxAge: int(cookieTime / time.Second), HttpOnly: true,
			SameSite: http.SameSiteStrictMode,
		})
		http.Redirect(w, r, "/", http.StatusSeeOther) // removes the token from the address bar and the history
		return
	}
	bearer, has := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	switch {
	case has && !equal(bearer, token):
		refuse(w, wrongToken)
		return
	case !has && !g.known(r, token):
		refuse(w, noToken)
		return
	case !has && r.Method != http.MethodGet && r.Header.Get("Origin") == "":
		http.Error(w, "a request that changes something must say where it comes from (Origin)", http.StatusForbidden)
		return
	}
	g.next.ServeHTTP(w, r)
}

func refuse(w http.ResponseWriter, text string) {
	w.Header().Set("WWW-Authenticate", "Bearer")
	http.Error(w, text, http.StatusUnauthorized)
}

// equal compares in a time independent of the position of a difference and of the lengths.
func equal(x, y string) bool {
	a, b := sha256.Sum256([]byte(x)), sha256.Sum256([]byte(y))
	return y != "" && hmac.Equal(a[:], b[:])
}

// cookie returns a cookie with its expiry, signed with the token.
func (g *tokenFilter) cookie(token string) string { return sign(token, g.now().Add(cookieTime).Unix()) }

func sign(token string, until int64) string {
	end := strconv.FormatInt(until, 10)
	mac := hmac.New(sha256.New, []byte(token))
	mac.Write([]byte("cookie until " + end))
	return end + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// known reports whether a request has a valid cookie.
func (g *tokenFilter) known(r *http.Request, token string) bool {
	if token == "" {
		return false
	}
	for _, c := range r.CookiesNamed(cookieName) {
		end, _, _ := strings.Cut(c.Value, ".")
		until, err := strconv.ParseInt(end, 10, 64)
		if err == nil && g.now().Unix() < until && equal(c.Value, sign(token, until)) {
			return true
		}
	}
	return false
}

// foreign returns the reason for rejecting a request that another site may have caused: ours does not accept its Host, or its
// Origin is not the page's own. Otherwise it returns "".
func foreign(r *http.Request, ours func(r *http.Request, host string) bool) string {
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.Trim(host, "[]"))
	address, err := netip.ParseAddr(host)
	switch {
	case host == "localhost", err == nil && address.IsLoopback():
	case !ours(r, host):
		return "the request is for the host " + strconv.Quote(r.Host) + ", which is not an address that this agent serves"
	}
	if origin := r.Header.Get("Origin"); origin != "" && origin != "http://"+r.Host {
		return "the request comes from a page of another site, " + strconv.Quote(origin)
	}
	return ""
}

func socketHost(_ *http.Request, host string) bool { return host == SocketHost }

// hosts accepts the host of the configured address, and the address to which the client has connected, which does not depend on a
// name.
func (g *tokenFilter) hosts(r *http.Request, host string) bool {
	if host != "" && strings.EqualFold(host, g.conf.Host) {
		return true
	}
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	address, err := netip.ParseAddr(host)
	return ok && err == nil && local.AddrPort().Addr().Unmap() == address.Unmap()
}
