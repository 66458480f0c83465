package resources

import (
	"context"
	"errors"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/supervisortest"
)

// claimBook is a ClaimManager that records its calls.
type claimBook struct {
	fail    error
	calls   []string
	holders []string
}

func (b *claimBook) Prepare(_ context.Context, pod *v1.Pod) error {
	b.calls = append(b.calls, "prepare "+string(pod.UID))
	if !slices.Contains(b.holders, string(pod.UID)) {
		b.holders = append(b.holders, string(pod.UID))
	}
	return b.fail
}

func (b *claimBook) Unprepare(_ context.Context, uid string) error {
	b.calls = append(b.calls, "unprepare "+uid)
	if b.fail == nil {
		b.holders = slices.DeleteFunc(b.holders, func(h string) bool { return h == uid })
	}
	return b.fail
}

func (b *claimBook) Holders() []string { return slices.Clone(b.holders) }

// claiming is the actor without cgroups and with claims.
func claiming(t *testing.T) (*node, *claimBook) {
	book := &claimBook{}
	n := &node{ops: cri.NewOperations()}
	n.actor = New(Options{Claims: book, Operations: n.ops, Parent: func() string { return "" }})("resources")
	n.Kit = supervisortest.New(t, messages.Resources, n.actor)
	return n, book
}

func TestClaims_PreparedAndReleased(t *testing.T) {
	n, book := claiming(t)
	pod := podOf("u", "1")
	if got := n.ask("u", messages.PrepareClaims{UID: "u", Pod: pod}); !slices.Equal(got, []any{messages.ClaimsPrepared{UID: "u"}}) {
		t.Errorf("got %+v", got)
	}
	if got := n.ask("u", messages.ReleaseClaims{UID: "u"}); !slices.Equal(got, []any{messages.ClaimsReleased{UID: "u"}}) {
		t.Errorf("got %+v", got)
	}
	if got := n.ask("u", messages.ReleaseClaims{UID: "u"}); !slices.Equal(got, []any{messages.ClaimsReleased{UID: "u"}}) {
		t.Errorf("a repeated release: got %+v", got)
	}
	if want := []string{"prepare u", "unprepare u", "unprepare u"}; !slices.Equal(book.calls, want) {
		t.Errorf("calls %q, want %q", book.calls, want)
	}
}

// A failure is reported with its cause, and retried after a pause, or at once when a driver registers.
func TestClaims_Retried(t *testing.T) {
	for _, release := range []bool{false, true} {
		n, book := claiming(t)
		book.fail = messages.Cause{Code: messages.CauseClaimDriverAbsent, Name: "gpu.org"}.Errorf("not registered")
		ask := any(messages.PrepareClaims{UID: "u", Pod: podOf("u", "1")})
		if release {
			ask = messages.ReleaseClaims{UID: "u"}
		}
		failed := func(sent []any) bool {
			f, ok := messages.ClaimsFailed{}, false
			if len(sent) == 1 {
				f, ok = sent[0].(messages.ClaimsFailed)
			}
			return ok && f.Release == release && f.Reason.Cause.Name == "gpu.org" && !f.Reason.RetryAt.IsZero()
		}
		if got := n.ask("u", ask); !failed(got) {
			t.Fatalf("release %v: got %+v", release, got)
		}
		n.Advance(claimsRetry.First)
		if got := n.work(); !failed(got) {
			t.Errorf("release %v: after the pause: got %+v", release, got)
		}
		book.fail = nil
		n.Send(messages.Resources, messages.ClaimDriversChanged{})
		want := any(messages.ClaimsPrepared{UID: "u"})
		if release {
			want = messages.ClaimsReleased{UID: "u"}
		}
		if got := n.work(); !slices.Equal(got, []any{want}) {
			t.Errorf("release %v: after a registration: got %+v", release, got)
		}
	}
}

// A pod that waits for a claim of another is tried again at the other's release.
func TestClaims_RetriedAfterARelease(t *testing.T) {
	n, book := claiming(t)
	n.ask("old", messages.PrepareClaims{UID: "old", Pod: podOf("old", "1")})
	book.fail = errors.New("the claim is being unprepared")
	n.ask("new", messages.PrepareClaims{UID: "new", Pod: podOf("new", "1")})
	book.fail = nil
	n.Send(messages.PodAddress("old"), messages.ReleaseClaims{UID: "old"})
	if got := n.work(); !slices.Contains(got, any(messages.ClaimsPrepared{UID: "new"})) {
		t.Errorf("got %+v, want that the new pod's claims are prepared", got)
	}
}

// The claims of pods that are gone are released by the sweep, until that succeeds, without an answer.
func TestClaims_OfPodsThatAreGone(t *testing.T) {
	n, book := claiming(t)
	book.holders, book.fail = []string{"gone", "there"}, errors.New("no power")
	there := podOf("there", "1")
	if got := n.sweep(false, there); len(got) > 0 || len(book.calls) > 0 {
		t.Errorf("before all sources have reported: got %+v, calls %q", got, book.calls)
	}
	if got := n.sweep(true, there); len(got) > 0 {
		t.Errorf("got %+v", got)
	}
	book.fail = nil
	n.Send(messages.Resources, messages.ClaimDriversChanged{}) // at once
	n.work()
	if want := []string{"unprepare gone", "unprepare gone"}; !slices.Equal(book.calls, want) || !slices.Equal(book.holders, []string{"there"}) {
		t.Errorf("calls %q, want %q; holders %q", book.calls, want, book.holders)
	}
}

// A pod that is gone before its claims are prepared has them released after that.
func TestClaims_ReleasedWhilePrepared(t *testing.T) {
	n, book := claiming(t)
	n.Send(messages.PodAddress("u"), messages.PrepareClaims{UID: "u", Pod: podOf("u", "1")})
	n.Send(messages.PodAddress("u"), messages.ReleaseClaims{UID: "u"})
	if got := n.work(); !slices.Equal(got, []any{messages.ClaimsReleased{UID: "u"}}) || len(book.holders) > 0 {
		t.Errorf("got %+v; holders %q, calls %q", got, book.holders, book.calls)
	}
}
