//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/e2e/stack"
	"golang.org/x/sys/unix"
)

// admin asks the admin socket as any program can: with HTTP. An error is that no whole answer came.
func admin(ctx context.Context, a *stack.Agent, method, path, body string) (int, string, error) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", a.AdminSocket)
		}}}
	req, err := http.NewRequestWithContext(ctx, method, "http://playlet"+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), errors.Join(err, resp.Body.Close())
}

// submitted waits for an agent that answers, and lists the submissions.
func submitted(t *testing.T, a *stack.Agent) map[string]bool {
	t.Helper()
	var list struct {
		Submissions []struct{ Name string }
	}
	await(t, func() error {
		status, text, err := admin(t.Context(), a, http.MethodGet, "/v1/submissions", "")
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("%d %s", status, text)
		}
		if err != nil {
			return err
		}
		return json.Unmarshal([]byte(text), &list)
	})
	out := map[string]bool{}
	for _, s := range list.Submissions {
		out[s.Name] = true
	}
	return out
}

// TestPodsSubmitted: playlet run and rm, and the pod between them outlives the agent.
func TestPodsSubmitted(t *testing.T) {
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		a := s.Agent(t)
		socket := "--admin-socket=" + a.AdminSocket
		file := filepath.Join(t.TempDir(), "web.yaml")
		must(t, os.WriteFile(file, []byte(manifest(s, "web", sleeper)), 0o600))
		settled(t, a)
		if out, errs, code := playlet(t, "run", "-f", file, "--wait", socket); out != "pod/"+onNode("web")+" created\n" ||
			code != 0 {
			t.Fatalf("%d %s%s", code, out, errs)
		}
		before := running(t, s, 1)
		must(t, a.Kill9())
		must(t, a.Start())
		settled(t, a)
		asStarted(t, s, before)
		if out, errs, code := playlet(t, "rm", "web", "--wait", socket); out != "pod/"+onNode("web")+" deleted\n" || code != 0 {
			t.Fatalf("%d %s%s", code, out, errs)
		}
		cleared(t, s, a)
	})
}

// TestASubmissionStorm submits a thousand manifests from eight clients while the agent is killed repeatedly. Acknowledged ones
// are desired, rejected ones are not, and a PUT settles the rest. The runtime is away until then, so that this only tests
// manifests.
func TestASubmissionStorm(t *testing.T) {
	const storm, clients, stay = 1000, 8, 5
	s := stack.Start(t, stack.Options{Runtime: stack.Containerd2})
	must(t, s.KillRuntime())
	a := s.Agent(t)
	submitted(t, a)
	name := func(i int) string { return fmt.Sprintf("p%d", i) }
	bad := func(i int) bool { return i%40 == 7 }
	put := func(i int) (int, error) {
		text := manifest(s, name(i), sleeper)
		if bad(i) {
			text = manifest(s, name(i), "containers: []")
		}
		status, _, err := admin(t.Context(), a, http.MethodPut, "/v1/submissions/default/"+name(i), text)
		return status, err
	}
	var mu sync.Mutex
	status := make([]int, storm) // 0: no answer
	acknowledged := 0
	kill := make(chan struct{}, storm)
	next := make(chan int)
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			for i := range next {
				got, err := put(i)
				if err != nil || got == http.StatusServiceUnavailable {
					got = 0
				}
				mu.Lock()
				status[i] = got
				if got == http.StatusCreated {
					if acknowledged++; acknowledged%150 == 0 {
						kill <- struct{}{}
					}
				}
				mu.Unlock()
			}
		})
	}
	kills := 0
	for i := range storm {
		select {
		case next <- i:
			continue
		case <-kill:
		}
		must(t, a.Kill9())
		must(t, a.Start())
		kills++
		next <- i
		submitted(t, a) // the others find no agent in the meantime
	}
	close(next)
	wg.Wait()
	must(t, a.Kill9())
	must(t, a.Start())
	there := submitted(t, a)
	unanswered := 0
	for i, got := range status {
		switch {
		case got == 0:
			unanswered++
		case bad(i) != (got == http.StatusUnprocessableEntity), !bad(i) && got != http.StatusCreated:
			t.Errorf("%s was answered with %d", name(i), got)
		case !bad(i) && !there[name(i)]:
			t.Errorf("%s was acknowledged and is lost", name(i))
		}
		if bad(i) && there[name(i)] {
			t.Errorf("%s is wrong and wanted", name(i))
		}
	}
	t.Logf("%d kills, %d acknowledged, %d without an answer", kills, acknowledged, unanswered)
	if kills < 3 || unanswered == 0 {
		t.Errorf("%d kills and %d without an answer: the storm was none", kills, unanswered)
	}
	for i, got := range status {
		if got != 0 || bad(i) {
			continue
		}
		if got, err := put(i); err != nil || got != http.StatusCreated && got != http.StatusOK {
			t.Errorf("%s again: %d %v", name(i), got, err)
		}
	}
	if n := len(submitted(t, a)); n != storm-storm/40 {
		t.Errorf("%d are wanted", n)
	}
	for i := stay; i < storm; i++ {
		if bad(i) {
			continue
		}
		if got, text, err := admin(t.Context(), a, http.MethodDelete, "/v1/submissions/default/"+name(i), ""); err != nil ||
			got != http.StatusOK {
			t.Fatalf("%d %s %v", got, text, err)
		}
	}
	must(t, s.StartRuntime())
	for _, c := range running(t, s, stay) {
		if pod := c.Labels["io.kubernetes.pod.name"]; len(pod) != len(onNode("p0")) {
			t.Errorf("there runs %s", pod)
		}
	}
	for i := range stay {
		_, _, err := admin(t.Context(), a, http.MethodDelete, "/v1/submissions/default/"+name(i), "")
		must(t, err)
	}
	cleared(t, s, a)
}

// TestAFullDiskRefusesSubmissions expects an error, nothing accepted to be lost, and success once there is room.
func TestAFullDiskRefusesSubmissions(t *testing.T) {
	s := stack.Start(t, stack.Options{Runtime: stack.Containerd2})
	a, err := s.NewAgent()
	must(t, err)
	dir := filepath.Join(a.RootDir, "playlet")
	must(t, os.Mkdir(dir, 0o700))
	must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"))
	t.Cleanup(func() {
		_ = a.Kill9()
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	must(t, a.Start())
	submitted(t, a)
	put := func(name, spec string, want int, words string) {
		t.Helper()
		got, text, err := admin(t.Context(), a, http.MethodPut, "/v1/submissions/default/"+name, manifest(s, name, spec))
		if err != nil || got != want || !strings.Contains(text, words) {
			t.Errorf("%s: %d %s %v, want %d", name, got, text, err, want)
		}
	}
	put("one", sleeper, http.StatusCreated, `"created"`)
	one := up(t, s, "one", "c")
	filler := filepath.Join(dir, "filler")
	f, err := os.Create(filler)
	must(t, err)
	for size := 4096; size > 0; size /= 2 {
		for err = nil; err == nil; {
			_, err = f.Write(bytes.Repeat([]byte("x"), size))
		}
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	must(t, f.Close())
	put("two", sleeper, http.StatusInsufficientStorage, "is full")
	put("one", strings.Replace(sleeper, "name: c,", "name: other,", 1), http.StatusInsufficientStorage, "is full")
	must(t, a.Kill9())
	must(t, a.Start())
	settled(t, a)
	if there := submitted(t, a); len(there) != 1 || !there["one"] {
		t.Errorf("on the full disk there are %v", there)
	}
	if now := up(t, s, "one", "c"); now.Id != one.Id {
		t.Error("the pod that was accepted was disturbed")
	}
	must(t, os.Remove(filler))
	put("two", sleeper, http.StatusCreated, `"created"`)
	up(t, s, "two", "c")
	for _, name := range []string{"one", "two"} {
		_, _, err := admin(t.Context(), a, http.MethodDelete, "/v1/submissions/default/"+name, "")
		must(t, err)
	}
	nothing(t, s)
}

// TestPodsOfAURL uses a server that changes, reports no change, fails, sends garbage, too much, and nothing at all.
func TestPodsOfAURL(t *testing.T) {
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		var mu sync.Mutex
		var answer http.HandlerFunc
		unchanged := 0
		set := func(h http.HandlerFunc) { mu.Lock(); defer mu.Unlock(); answer = h }
		server := &http.Server{ReadHeaderTimeout: time.Minute,
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				h := answer
				mu.Unlock()
				if r.Header.Get("X-Token") != "s3cret-token" {
					h = func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "who are you?", http.StatusForbidden) }
				}
				h(w, r)
			})}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		done := make(chan struct{})
		go func() { defer close(done); _ = server.Serve(l) }()
		t.Cleanup(func() { _ = server.Close(); <-done })
		serve := func(tag, text string) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("ETag", `"`+tag+`"`)
				if r.Header.Get("If-None-Match") == `"`+tag+`"` {
					mu.Lock()
					unchanged++
					mu.Unlock()
					w.WriteHeader(http.StatusNotModified)
					return
				}
				_, _ = io.WriteString(w, text)
			}
		}
		set(serve("1", manifest(s, "web", sleeper)))
		a := s.Agent(t, "--manifest-url=http://"+l.Addr().String()+"/pods", "--manifest-url-header=X-Token:s3cret-token",
			"--http-check-frequency=200ms")
		web := up(t, s, "web", "c")
		await(t, func() error {
			mu.Lock()
			defer mu.Unlock()
			if unchanged == 0 {
				return errors.New("it never asked whether something changed")
			}
			return nil
		})
		awaitURLProblem := func(words string) {
			t.Helper()
			await(t, func() error {
				now, err := a.Snapshot(t.Context())
				if err != nil {
					return err
				}
				for _, p := range now.Problems {
					if strings.Contains(p.Message, words) {
						return nil
					}
				}
				return fmt.Errorf("no problem with %q: %+v", words, now.Problems)
			})
		}
		for words, h := range map[string]http.HandlerFunc{
			"answers 500":     func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
			"must be an obj":  serve("garbage", "garbage"),
			"answer is empty": serve("empty", ""),
			"larger than":     serve("large", strings.Repeat("#", 11<<20)),
			"no whole answer": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		} {
			set(h)
			awaitURLProblem(words)
		}
		must(t, a.Kill9())
		must(t, a.Start()) // the server is still no use
		settled(t, a)
		asStarted(t, s, running(t, s, 1))
		if now := up(t, s, "web", "c"); now.Id != web.Id {
			t.Errorf("container %s became %s", web.Id, now.Id)
		}
		set(serve("2", manifest(s, "web", sleeper)+"---\n"+manifest(s, "more", sleeper)))
		up(t, s, "more", "c")
		set(serve("3", "apiVersion: v1\nkind: PodList\nitems: []\n"))
		cleared(t, s, a)
		if strings.Contains(a.Log(), "s3cret-token") {
			t.Error("the header's value is in the log")
		}
	})
}
