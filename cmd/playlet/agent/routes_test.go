package agent

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/actors/server/admin"
	"github.com/playlet-dev/playlet/cri/sim"
)

// TestRoutes_AnswersHaveTheirType checks the answers of a running agent against the types in docs/openapi.json. Each route also
// rejects an unknown parameter.
func TestRoutes_AnswersHaveTheirType(t *testing.T) {
	r := newClusterRig(t, sim.Options{}, "--enable-chaos", "--observatory-address=127.0.0.1:0")
	r.write("web.yaml", manifest("web", "Always", nil, []string{"one forever"}))
	r.start(nil)
	r.untilPrinted([]string{"pods"}, "web-node   1/1     Running")
	if out, notes, code := r.playlet("chaos", "kill", "volumes"); code != 0 {
		t.Fatalf("%d %s%s", code, out, notes)
	}
	uid := r.runtime.Snapshot().Sandbox("web-node").UID
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", r.agent.node.AdminSocket)
	}, DisableKeepAlives: true}}
	answer := func(method, path string) (int, string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, method, "http://playlet"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }() // read-only
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	queries := map[string]string{
		"/v1/criticalpath": "?pod=web-node", "/v1/trace": "?pod=web-node", "/v1/figures/history": "?pod=" + uid,
		"/v1/figures": "?pod=" + uid,
	}
	fill := strings.NewReplacer("/{kind}/{name}", "/pod/web-node", "{kind}", "node", "{actor...}", "pods/"+uid, "{uid}", uid,
		"{namespace}/{pod}", "default/web-node", "{id}", "1")
	for _, route := range admin.Routes() {
		path := fill.Replace(route.Path)
		if code, text := answer(route.Method, path+"?nonsense=1"); code != http.StatusBadRequest ||
			!strings.Contains(text, `unknown parameter \"nonsense\"`) {
			t.Errorf("%s %s with an unknown parameter: %d %s", route.Method, path, code, text)
		}
		if _, text := route.Answer.(string); text || route.Method != http.MethodGet || strings.Contains(path, "submissions/") {
			continue
		}
		code, text := answer(route.Method, path+queries[path])
		if code != http.StatusOK {
			t.Errorf("%s: %d %s", path, code, text)
			continue
		}
		strict := json.NewDecoder(strings.NewReader(text))
		strict.DisallowUnknownFields()
		if err := strict.Decode(reflect.New(reflect.TypeOf(route.Answer)).Interface()); err != nil {
			t.Errorf("%s: the answer is not a %T: %v\n%s", path, route.Answer, err, text)
		}
	}
}
