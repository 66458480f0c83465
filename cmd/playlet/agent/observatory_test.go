package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cri/sim"
	"github.com/playlet-dev/playlet/supervisors/trace"
)

// TestTheObservatoryOfARunningAgent goes from the flag to the requests of the page. The command prints the address. Its token
// grants access and stays valid across a restart. Each request is answered. No answer contains a pod's secret, and the log does
// not contain the token.
func TestTheObservatoryOfARunningAgent(t *testing.T) {
	const secret = "s3cr3t"
	r := newRig(t, sim.Options{}, "--observatory-address=127.0.0.1:0")
	r.write("web.yaml", strings.Replace(manifest("web", "Always", nil, []string{"main app:1"}), "    image: app:1\n",
		"    image: app:1\n    env: [{name: PASSWORD, value: "+secret+"}]\n", 1))
	r.start(nil)
	r.untilPrinted([]string{"pods"}, "web-node   1/1     Running")
	at := r.observatory()
	token := at.Query().Get("token")
	ask := func(method, path, bearer string) (int, string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, method, "http://"+at.Host+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if bearer != "" {
			req.Header.Set("Authorization", "Bearer "+bearer)
		}
		transport := http.Transport{DisableKeepAlives: true}
		resp, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		var text strings.Builder
		if strings.Contains(path, "follow=true") { // the first line shows that the stream works; the rest would not end
			line, err := bufio.NewReader(resp.Body).ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			return resp.StatusCode, line
		}
		if _, err := io.Copy(&text, resp.Body); err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, text.String()
	}
	uid := string(r.agent.observatory.board.Now().Pods[0].Pod.UID)
	for path, want := range map[string]string{
		"/":                                   "<title>Playlet<",
		"/observatory/page.js":                "import",
		"/v1/pods":                            `"name":"main"`,
		"/v1/actors":                          `"path":"pods/` + uid,
		"/v1/actors/pods":                     `"children":["`,
		"/v1/explain/pod/web-node":            "the pod is running",
		"/v1/explain/node":                    `"kind":"Node"`,
		"/v1/events":                          "Started",
		"/v1/version":                         `"pid":`,
		"/v1/figures?pod=" + uid:              `"nodeName":"node"`,
		"/v1/trace?pod=" + uid:                "StartContainer",
		"/v1/trace?follow=true&pod=" + uid:    "StartContainer",
		"/v1/criticalpath?pod=" + uid:         `"segments":[{`,
		"/v1/criticalpath?pod=web-node&x=y":   "unknown parameter",
		"/v1/criticalpath":                    "a pod is named",
		"/v1/criticalpath?pod=none-of-these":  "there is no critical path",
		"/v1/chaos":                           "--enable-chaos",
		"/v1/pods?watch=maybe":                "neither true nor false",
		"/v1/actors/pods/none":                "there is no actor",
		"/v1/explain/pod/none":                "there is no pod",
		"/v1/explain/pod/web-node?namespace=": "web-node",
	} {
		code, text := ask("GET", path, token)
		if !strings.Contains(text, want) || strings.Contains(text, secret) {
			t.Errorf("%s: %d %.2000s\nwant %q", path, code, text, want)
		}
		if code, text := ask("GET", path, ""); code != 401 || !strings.Contains(text, "playlet observatory") {
			t.Errorf("%s without the token: %d %s", path, code, text)
		}
	}
	var path trace.Path
	if _, text := ask("GET", "/v1/criticalpath?pod="+uid, token); json.Unmarshal([]byte(text), &path) != nil || path.Took <= 0 {
		t.Errorf("%s", text)
	}
	for _, s := range path.Segments {
		path.Took -= s.Took
	}
	if path.Took != 0 {
		t.Errorf("the segments do not add up: %v", path.Took)
	}
	if code, _ := ask("POST", "/v1/chaos", token); code != 405 {
		t.Errorf("chaos that is not enabled: %d", code)
	}
	if code, _ := ask("POST", "/v1/exec/default/web-node?command=id", token); code != 404 {
		t.Errorf("exec: %d", code)
	}
	logged := r.log.String()
	r.stop()
	r.start(nil)
	if again := r.observatory(); again.Query().Get("token") != token {
		t.Error("the token did not stay")
	}
	if strings.Contains(logged+r.log.String(), token) {
		t.Error("the token is in the log")
	}
}

// observatory is the address that the command prints.
func (r *rig) observatory() *url.URL {
	r.t.Helper()
	out, notes, code := r.playlet("observatory")
	at, err := url.Parse(strings.TrimSpace(out))
	if code != 0 || err != nil || at.Hostname() != "127.0.0.1" || at.Port() == "0" || len(at.Query().Get("token")) != 43 {
		r.t.Fatalf("%d %s%s%v", code, out, notes, err)
	}
	return at
}

// Without the flag the page is on the admin socket, and the command prints how to reach it.
func TestTheObservatoryOnTheSocketAlone(t *testing.T) {
	r := newRig(t, sim.Options{})
	r.start(nil)
	if out, notes, code := r.playlet("observatory"); code != 1 || !strings.Contains(notes, "--observatory-address") ||
		!strings.Contains(notes, "it is also on the admin socket") {
		t.Errorf("%d %s%s", code, out, notes)
	}
	if _, err := api.NewClient(r.agent.node.AdminSocket).Version(t.Context()); err != nil {
		t.Error(err)
	}
	for _, l := range r.agent.listeners.State() {
		if l.Name == "observatory" {
			t.Errorf("%+v", l)
		}
	}
}
