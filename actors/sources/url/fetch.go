package url

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/playlet-dev/playlet/actors/internal/manifest"
	"github.com/playlet-dev/playlet/actors/sources/base"
	"github.com/playlet-dev/playlet/config"
)

// maxBody is the maximum size of an uncompressed answer, in bytes.
const maxBody = manifest.MaxBytes

// maxRedirects is the limit of Go's client, and thus of the kubelet.
const maxRedirects = 10

// fetcher requests the URL. Safe for concurrent use.
type fetcher struct {
	opts   Options
	shown  string // the URL without secrets, for display
	secret *strings.Replacer
	client *http.Client
}

func newFetcher(opts Options) *fetcher {
	transport := opts.Transport
	if transport == nil {
		own := http.DefaultTransport.(*http.Transport).Clone()
		own.DisableKeepAlives = true // the next request is much later
		transport = own
	}
	f := &fetcher{opts: opts, shown: config.PresentableURL(opts.URL), secret: masker(opts.Header)}
	f.client = &http.Client{Transport: transport, CheckRedirect: f.redirect}
	return f
}

// masker replaces the headers' values wherever a server sends them back.
func masker(header http.Header) *strings.Replacer {
	var pairs []string
	for _, values := range header {
		for _, v := range values {
			for _, part := range append(strings.Fields(v), v) { // "Bearer token": the token too
				if len(part) > 3 {
					pairs = append([]string{part, "<masked>"}, pairs...)
				}
			}
		}
	}
	return strings.NewReplacer(pairs...)
}

// redirect follows redirects as the kubelet does. It sends the configured headers, and the address of origin, to no other
// scheme, host or port. Go alone would only hold back well-known headers, such as Authorization.
func (f *fetcher) redirect(req *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects {
		return fmt.Errorf("it redirects more than %d times", maxRedirects)
	}
	if first := via[0].URL; req.URL.Scheme != first.Scheme || req.URL.Host != first.Host {
		for name := range f.opts.Header {
			req.Header.Del(name)
		}
		for _, name := range []string{"Authorization", "Cookie", "Referer", "If-None-Match", "If-Modified-Since"} {
			req.Header.Del(name)
		}
	}
	return nil
}

// fetch sends one request and reads its answer.
func (f *fetcher) fetch(ctx context.Context, v validators, now time.Time) fetchResult {
	out := fetchResult{at: now}
	body, err := f.get(ctx, v, &out)
	if err != nil {
		out.failure = "it cannot be read: " + f.secret.Replace(f.reason(err))
		return out
	}
	if out.same {
		return out
	}
	if out.empty = manifest.Empty(body); out.empty {
		return out
	}
	pods, problems := manifest.Load(f.opts.URL, body, f.opts.Node.Manifest(manifest.HTTPSource, now))
	out.pods = pods
	for _, p := range base.Problems(problems) {
		p.Path, p.Pod, p.Field, p.Message = f.shown, f.secret.Replace(p.Pod), f.secret.Replace(p.Field),
			f.secret.Replace(p.Message)
		out.problems = append(out.problems, p)
	}
	return out
}

func (f *fetcher) get(ctx context.Context, v validators, out *fetchResult) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.opts.URL, nil)
	if err != nil {
		return nil, err
	}
	for name, values := range f.opts.Header {
		for _, value := range values {
			req.Header.Add(name, value)
		}
	}
	conditional := v != (validators{})
	if v.ETag != "" {
		req.Header.Set("If-None-Match", v.ETag)
	}
	if v.LastModified != "" {
		req.Header.Set("If-Modified-Since", v.LastModified)
	}
	resp, err := f.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // only read from
	out.answer = fmt.Sprintf("%d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	if resp.StatusCode == http.StatusNotModified && conditional {
		out.same = true
		return nil, nil
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the server answers %s", out.answer)
	}
	out.validators = validators{ETag: resp.Header.Get("ETag"), LastModified: resp.Header.Get("Last-Modified")}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	if err != nil {
		return nil, err
	}
	if len(body) > maxBody {
		return nil, fmt.Errorf("it is larger than the %d MiB that a manifest may have", maxBody>>20)
	}
	return body, nil
}

// reason returns an error in plain words, without the URL, which may contain a credential.
func (f *fetcher) reason(err error) string {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Sprintf("there is no whole answer within %s", requestTimeout)
	}
	return strings.ReplaceAll(err.Error(), f.opts.URL, f.shown)
}
