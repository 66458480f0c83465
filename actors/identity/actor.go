package identity

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

const (
	// lookEvery is between looks at the certificates. One reads memory and, of a self-signed pair, two files.
	lookEvery   = 10 * time.Second
	lookTimeout = time.Minute
)

// Options are the credentials to maintain. Each of them may be nil.
type Options struct {
	Client  *Client
	Serving *ServingCertificate
	State   *State
}

// Certificate is the state of one of this node's certificates, for inspection.
type Certificate struct {
	Name string `json:"name"` // "client" or "serving"
	// Subject, NotBefore and NotAfter are of the one in force; NotAfter is zero where there is none.
	Subject   string    `json:"subject,omitempty"`
	NotBefore time.Time `json:"notBefore,omitzero"`
	NotAfter  time.Time `json:"notAfter,omitzero"`
	// Request is the one that has not led to a certificate.
	Request *Request `json:"request,omitempty"`
	// Error describes any other failure.
	Error string `json:"error,omitempty"`
}

// State is the state of the credentials, for readers outside the tree. Safe for concurrent use; the zero value is empty.
type State struct{ p atomic.Pointer[Inspection] }

// Expiry is when the certificates in force end, by their names.
func (s *State) Expiry() map[string]time.Time {
	out := map[string]time.Time{}
	if p := s.p.Load(); p != nil {
		for _, c := range p.Certificates {
			if !c.NotAfter.IsZero() {
				out[c.Name] = c.NotAfter
			}
		}
	}
	return out
}

// Problems are sentences for health. They stay the same while nothing happens.
func (s *State) Problems() []string {
	if p := s.p.Load(); p != nil {
		return p.Problems
	}
	return nil
}

// New makes the constructor of the actor of kind "identity".
func New(o Options) supervisors.Constructor {
	return func(string) supervisors.Actor { return &actor{opts: o} }
}

type actor struct {
	opts    Options
	looking bool
	last    Inspection
}

type (
	look       struct{}
	lookResult struct{ certificates []Certificate }
)

func (a *actor) Receive(ctx supervisors.Context, msg any) {
	switch m := msg.(type) {
	case messages.Started, look:
		a.look(ctx)
	case lookResult:
		a.handleLook(ctx, m)
	default:
		ctx.Unhandled(msg)
	}
}

// look starts the parts that are not running, and reads the state of the certificates. Parts started by a predecessor
// continue.
func (a *actor) look(ctx supervisors.Context) {
	if a.looking {
		return
	}
	a.looking = true
	client, serving, now := a.opts.Client, a.opts.Serving, ctx.Now()
	ctx.Do(supervisors.Work{Name: "look after the certificates", Timeout: lookTimeout, Run: func(context.Context) any {
		var out lookResult
		if client != nil {
			client.ensure()
			out.certificates = append(out.certificates, client.state()...)
		}
		if serving != nil {
			out.certificates = append(out.certificates, serving.state(serving.ensure(), now))
		}
		return out
	}})
}

func (a *actor) handleLook(ctx supervisors.Context, m lookResult) {
	a.looking = false
	now := problems(m.certificates, ctx.Now())
	for _, p := range now {
		if !slices.Contains(a.last.Problems, p) {
			ctx.Log().Warn("a credential of this node needs attention", "problem", p)
		}
	}
	for _, p := range a.last.Problems {
		if !slices.Contains(now, p) {
			ctx.Log().Info("the problem of a credential of this node is resolved", "problem", p)
		}
	}
	a.last = Inspection{m.certificates, now}
	if a.opts.State != nil {
		a.opts.State.p.Store(&Inspection{m.certificates, now})
	}
	ctx.After(lookEvery, look{})
}

// Inspection is the actor's detail of an inspection.
type Inspection struct {
	Certificates []Certificate `json:"certificates,omitempty"`
	Problems     []string      `json:"problems,omitempty"`
}

func (a *actor) Inspect() any {
	return Inspection{slices.Clone(a.last.Certificates), slices.Clone(a.last.Problems)}
}

// problems describes the problems of certificates at this time.
func problems(certificates []Certificate, now time.Time) []string {
	var out []string
	for _, c := range certificates {
		end := c.NotAfter.UTC().Format(time.RFC3339)
		switch {
		case c.NotAfter.IsZero():
			if c.Request == nil && c.Error == "" {
				out = append(out, fmt.Sprintf("there is no %s certificate", c.Name))
			}
		case now.After(c.NotAfter):
			out = append(out, fmt.Sprintf("the %s certificate expired on %s", c.Name, end))
		case now.Before(c.NotBefore):
			out = append(out, fmt.Sprintf("the %s certificate is not valid before %s: correct the clock of the node, or "+
				"replace the certificate", c.Name, c.NotBefore.UTC().Format(time.RFC3339)))
		case c.NotAfter.Sub(now) < c.NotAfter.Sub(c.NotBefore)/10: // rotation begins between 7 and 9 tenths of its life
			out = append(out, fmt.Sprintf("the %s certificate expires on %s", c.Name, end))
		}
		if c.Request != nil {
			out = append(out, c.Request.String())
		}
		if c.Error != "" {
			out = append(out, c.Error)
		}
	}
	return out
}

// describe fills in the certificate in force.
func (c *Certificate) describe(pair *tls.Certificate) {
	if pair == nil {
		return
	}
	leaf := pair.Leaf
	if leaf == nil && len(pair.Certificate) > 0 {
		leaf, _ = x509.ParseCertificate(pair.Certificate[0]) // it was parsed before; an error leaves leaf nil
	}
	if leaf != nil {
		c.Subject, c.NotBefore, c.NotAfter = leaf.Subject.String(), leaf.NotBefore, leaf.NotAfter
	}
}

// state returns the state of the client certificate; none for other kinds of credentials.
func (c *Client) state() []Certificate {
	out := Certificate{Name: "client", Request: c.requests.open(), Error: c.unsaved}
	switch {
	case c.manager != nil:
		out.describe(c.manager.Current())
	case hasCertificate(c.base):
		if pair, err := keyPair(c.base); err != nil {
			out.Error = fmt.Sprintf("the client certificate of --kubeconfig cannot be read: %v", err)
		} else {
			out.describe(pair)
		}
	default:
		return nil
	}
	return []Certificate{out}
}

// state returns the state of the serving certificate at this time; err is its latest failure.
func (s *ServingCertificate) state(err error, now time.Time) Certificate {
	out := Certificate{Name: "serving", Request: s.requests.open()}
	if err == nil {
		err = s.checkFiles(now)
	}
	if err != nil {
		out.Error = err.Error()
	}
	out.describe(s.inForce())
	return out
}
