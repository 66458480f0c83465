package objects

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/playlet-dev/playlet/actors/internal/apiclient"
	"github.com/playlet-dev/playlet/messages"
)

// lastingAfter is how long reading an object must have failed before that is reported: some failures pass by themselves.
const lastingAfter = 5 * time.Second

// failureState is why something cannot be read; guarded by the cluster's mutex. The zero value is none.
type failureState struct {
	err        error     // the last failure; nil for none
	since      time.Time // tries fail
	readBefore bool      // it was read before; of a kind
}

// failed notes a failure.
func (t *failureState) failed(err error, now time.Time) {
	if t.err == nil {
		t.since = now
	}
	t.err = err
}

// clear notes that the API server answers.
func (t *failureState) clear() { t.err, t.since = nil, time.Time{} }

// withoutExpected passes on to noted all errors but those that a reflector answers by another request. An API server that has
// forgotten all changes each time is passed on, too.
func withoutExpected(noted func(context.Context, error) error) func(context.Context, error) error {
	var gone atomic.Int32
	return func(ctx context.Context, err error) error {
		if !apiclient.Gone(err) {
			gone.Store(0)
		} else if gone.Add(1) < apiclient.GoneOften {
			return err
		}
		if apierrors.IsInvalid(err) {
			return err
		}
		return noted(ctx, err)
	}
}

// kind is the trouble with all objects of a kind.
func (c *cluster) kind(name string) *failureState {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &failureState{}
	c.kinds[name] = t
	return t
}

// answered records the result of a request, and returns an explained error.
func (c *cluster) answered(t *failureState, err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		t.clear()
		return nil
	}
	t.failed(err, c.now())
	return apiclient.Explained(err, c.opts.NodeName)
}

// read notes that something of a kind was read.
func (c *cluster) read(t *failureState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t.readBefore = true
}

// problems returns the lasting failures of reads, grouped by cause.
func (c *cluster) problems() []messages.ManifestProblem { return c.problemsAt(c.now()) }

func (c *cluster) problemsAt(now time.Time) []messages.ManifestProblem {
	c.mu.Lock()
	defer c.mu.Unlock()
	by, kept := map[string][]string{}, map[string]bool{}
	add := func(name string, t failureState, known bool) {
		if t.err != nil && now.Sub(t.since) >= lastingAfter {
			why := apiclient.Explain(t.err, c.opts.NodeName)
			by[why] = append(by[why], name)
			kept[why] = kept[why] || known
		}
	}
	for r, f := range c.followers {
		add(r.String(), f.failureState, c.opts.Board.Has(r))
	}
	for name, t := range c.kinds {
		add(name, *t, t.readBefore)
	}
	var out []messages.ManifestProblem
	for _, why := range slices.Sorted(maps.Keys(by)) {
		slices.Sort(by[why])
		out = append(out, messages.ManifestProblem{Path: "API server", Message: some(by[why]) + " cannot be read: " + why,
			KeptLast: kept[why]})
	}
	return out
}

// some names the first few.
func some(names []string) string {
	const few = 3
	if len(names) <= few {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), len(names)-few)
}
