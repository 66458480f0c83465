package podlog

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"maps"
	"testing"
)

// However an actor speaks of a pod, the line has the pod's name and UID, once each.
func TestALineNamesItsPod(t *testing.T) {
	for name, c := range map[string]struct {
		with, args []any
		want       map[string]any
	}{
		"no pod": {[]any{"actor", "images"}, []any{"x", 1.0}, map[string]any{"actor": "images", "x": 1.0}},
		"its actor": {[]any{"actor", "pods/u1"}, nil,
			map[string]any{"actor": "pods/u1", "pod": "ns/web", "podUID": "u1"}},
		"its container": {[]any{"actor", "pods/u1/c"}, nil,
			map[string]any{"actor": "pods/u1/c", "pod": "ns/web", "podUID": "u1"}},
		"a stranger's actor": {[]any{"actor", "pods/u2"}, nil, map[string]any{"actor": "pods/u2", "podUID": "u2"}},
		"an actor of a line": {nil, []any{"actor", "pods/u1"},
			map[string]any{"actor": "pods/u1", "pod": "ns/web", "podUID": "u1"}},
		"by UID": {[]any{"actor", "volumes"}, []any{"pod", "u1"},
			map[string]any{"actor": "volumes", "pod": "ns/web", "podUID": "u1"}},
		"a stranger's UID": {[]any{"actor", "volumes"}, []any{"pod", "u2"},
			map[string]any{"actor": "volumes", "podUID": "u2"}},
		"by name": {[]any{"actor", "pods"}, []any{"pod", "ns/web", "podUID", "u1"},
			map[string]any{"actor": "pods", "pod": "ns/web", "podUID": "u1"}},
		"by name, in its own": {[]any{"actor", "pods/u1"}, []any{"pod", "ns/web"},
			map[string]any{"actor": "pods/u1", "pod": "ns/web", "podUID": "u1"}},
		"given to the logger": {[]any{"actor", "prober", "pod", "u1"}, []any{"y", true},
			map[string]any{"actor": "prober", "pod": "ns/web", "podUID": "u1", "y": true}},
		"another than before": {[]any{"actor", "prober", "pod", "u2"}, []any{"pod", "u1"},
			map[string]any{"actor": "prober", "pod": "ns/web", "podUID": "u1"}},
		"the actor of all":     {[]any{"actor", "pods"}, nil, map[string]any{"actor": "pods"}},
		"a logger with a name": {[]any{"pod", "ns/other"}, nil, map[string]any{"pod": "ns/other"}},
	} {
		var out bytes.Buffer
		names := NewNames()
		names.Note("u1", "ns/web")
		log := WithNames(slog.New(slog.NewJSONHandler(&out, nil)), names)
		log.With(c.with...).Info("said", c.args...)
		keys := keysOf(t, out.Bytes())
		var got map[string]any
		if err := json.Unmarshal(out.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		for _, k := range []string{"time", "level", "msg"} {
			delete(got, k)
		}
		if !maps.Equal(got, c.want) || len(keys) != len(c.want)+3 {
			t.Errorf("%s: %v, with the keys %q", name, got, keys)
		}
	}
}

// keysOf lists the keys of a JSON object; one that is there twice, twice.
func keysOf(t *testing.T, text []byte) (keys []string) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	if _, err := d.Token(); err != nil {
		t.Fatal(err)
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, key.(string))
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			t.Fatal(err)
		}
	}
	return keys
}

func TestPodNamesAreBounded(t *testing.T) {
	names := NewNames()
	for i := range 3 * mostNames {
		names.Note(string(rune(i)), "x")
	}
	if len(names.names) != mostNames || len(names.order) != mostNames {
		t.Errorf("%d %d", len(names.names), len(names.order))
	}
}
