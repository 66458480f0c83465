package shares

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"
)

// fill takes places for the keys until there are none.
func fill(t *testing.T, l *Limit, keys ...string) (held int) {
	t.Helper()
	for {
		if _, err := l.Take(keys...); err != nil {
			return held
		}
		held++
	}
}

// However much others hold, a newcomer finds a place: another client, and in the same client another namespace or pod.
func TestLimit_Newcomers(t *testing.T) {
	l := New("logs", 256)
	for _, c := range []struct {
		keys []string
		want int
	}{
		{[]string{"api", "a", "greedy"}, 32},
		{[]string{"api", "a", "other"}, 16},
		{[]string{"api", "b", "greedy"}, 20},
		{[]string{"prometheus"}, 94},
	} {
		if got := fill(t, l, c.keys...); got != c.want {
			t.Errorf("%v holds %d, want %d", c.keys, got, c.want)
		}
	}
	_, err := l.Take("prometheus")
	if full := (*FullError)(nil); !errors.As(err, &full) || full.Key != "prometheus" {
		t.Errorf("got %v", err)
	}
	if got := fill(t, l, "root"); got == 0 {
		t.Error("there is no place for the administrator")
	}
}

// Places are kept for keys that hold none, beside any others that hold all they may, and more for kube-system.
func TestLimit_KeepsPlaces(t *testing.T) {
	for _, users := range []int{1, 10, 40} {
		for _, namespaces := range []int{17, 400} {
			l := New("streams", 512)
			for n := range namespaces {
				fill(t, l, "user kube-apiserver", fmt.Sprint("namespace ", n), "pod a")
			}
			for n := range users - 1 {
				fill(t, l, fmt.Sprint("user ", n), "namespace a", "pod a")
			}
			if namespaces == 17 {
				if _, err := l.Take("user new", "namespace new", "pod a"); err != nil {
					t.Errorf("a new user beside %d: %v", users, err)
				}
			}
			if namespaces == 17 && users == 1 {
				if _, err := l.Take("user kube-apiserver", "namespace new", "pod a"); err != nil {
					t.Errorf("a new namespace beside %d: %v", namespaces, err)
				}
			}
			if got := fill(t, l, "user kube-apiserver", SystemKey, "pod a"); got < 4 {
				t.Errorf("kube-system has %d places beside %d users and %d namespaces", got, users, namespaces)
			}
		}
	}
}

// No key ever holds more than half of the places that others leave, and all places come back.
func TestLimit_Property(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(1, 40).Draw(t, "most")
		l, held := New("x", most), map[string]int{}
		var releases []func()
		var keys []string
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			if len(releases) > 0 && rapid.Bool().Draw(t, "release") {
				i := rapid.IntRange(0, len(releases)-1).Draw(t, "which")
				releases[i]()
				releases[i]() // a second time changes nothing
				held[keys[i]]--
				releases, keys = append(releases[:i], releases[i+1:]...), append(keys[:i], keys[i+1:]...)
				continue
			}
			key, others := fmt.Sprint(rapid.IntRange(0, 5).Draw(t, "key")), 0
			for k, n := range held {
				if k != key {
					others += n
				}
			}
			release, err := l.Take(key, "pod"+key)
			if err != nil {
				continue
			}
			if held[key]++; 2*held[key] > most-others+1 {
				t.Fatalf("%s holds %d of %d beside %d", key, held[key], most, others)
			}
			releases, keys = append(releases, release), append(keys, key)
		}
		for _, release := range releases {
			release()
		}
		if l.Held() != 0 || len(l.root.below) != 0 {
			t.Fatalf("%d places and %d keys are left", l.Held(), len(l.root.below))
		}
	})
}

// Requests wait in their order, each for a place in its own share, and a bounded number of them.
func TestLimit_Wait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewQueue("answers", 4, 4)
		first, err := l.Take("a")
		if err != nil {
			t.Fatal(err)
		}
		fill(t, l, "a")
		got := make(chan string, 4)
		wait := func(ctx context.Context, key, name string) {
			release, err := l.Wait(ctx, key)
			if err != nil {
				name = "refused " + name
			}
			got <- name
			if release != nil {
				<-ctx.Done()
				release()
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		gone, leave := context.WithCancel(t.Context())
		go wait(gone, "a", "first")
		synctest.Wait()
		go wait(ctx, "a", "second")
		synctest.Wait()
		if _, err := l.Wait(t.Context(), "a"); err == nil {
			t.Error("a client has more than its share of the queue")
		}
		go wait(ctx, "b", "other")
		if name := <-got; name != "other" {
			t.Errorf("got %s, want the other client's, which does not wait for the first one's", name)
		}
		leave()
		if name := <-got; name != "refused first" {
			t.Errorf("got %s, want refused first", name)
		}
		first()
		if name := <-got; name != "second" {
			t.Errorf("got %s, want second", name)
		}
		cancel()
		synctest.Wait()
		if l.wait.Held() != 0 || len(l.waiting) != 0 {
			t.Errorf("%d wait", l.wait.Held())
		}
	})
}

// Of too much work the oldest of the largest key goes. Work of the system stays while it is no more than half.
func TestExcess(t *testing.T) {
	for name, c := range map[string]struct {
		work []string // namespace/pod
		want int
	}{
		"one alone":                {[]string{"a/x"}, 0},
		"equal":                    {[]string{"b/x", "a/x"}, 0},
		"largest namespace":        {[]string{"a/x", "b/x", "b/y"}, 1},
		"largest pod within":       {[]string{"a/x", "b/x", "b/y", "b/y"}, 2},
		"system is the largest":    {[]string{"kube-system/x", "kube-system/x", "a/x", "b/x"}, 2},
		"system is more than half": {[]string{"a/x", "kube-system/x", "kube-system/y", "kube-system/y"}, 2},
	} {
		var work [][]string
		for _, w := range c.work {
			namespace, pod, _ := strings.Cut(w, "/")
			work = append(work, []string{"namespace " + namespace, "pod " + pod})
		}
		if got := Excess(work); got != c.want {
			t.Errorf("%s: dropped %d, want %d", name, got, c.want)
		}
	}
}

func TestClient(t *testing.T) {
	r := httptest.NewRequest("GET", "/", nil)
	for remote, want := range map[string]string{"192.0.2.1:77": "192.0.2.1/32", "[2001:db8:1:2:3::4]:5": "2001:db8:1:2::/64",
		"@": "the socket"} {
		if r.RemoteAddr = remote; Client(r) != want {
			t.Errorf("got %s, want %s", Client(r), want)
		}
	}
	if got := Client(r.WithContext(WithClient(t.Context(), "user kube"))); got != "user kube" {
		t.Errorf("got %s", got)
	}
}
