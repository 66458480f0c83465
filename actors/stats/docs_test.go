package stats

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"sigs.k8s.io/yaml"

	"github.com/playlet-dev/playlet/supervisors"
)

var update = flag.Bool("update", false, "rewrite the generated part of docs/metrics.md")

const metricsPage = "../../docs/metrics.md"

type idle struct{}

func (idle) Receive(supervisors.Context, any) {}

// families of one path, in the order of the page.
type pathFamilies struct {
	path     string
	families map[string]*dto.MetricFamily
}

// allFamilies returns the families of each path. Those of the actor system come from a real, empty tree.
func allFamilies(t *testing.T) (out []pathFamilies) {
	t.Helper()
	_, h := exercise(t)
	for _, path := range []string{"/metrics", "/metrics/cadvisor", "/metrics/probes", "/metrics/resource", "/metrics/slis"} {
		out = append(out, pathFamilies{path, families(t, get(t, h, path).Body.String())})
	}
	s, err := supervisors.Start(supervisors.Options{Tree: &supervisors.Row{Kind: "node", Strategy: supervisors.Strategy{Panics: 1}},
		Constructors: map[supervisors.Kind]supervisors.Constructor{"node": func(string) supervisors.Actor { return idle{} }}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	registry := prometheus.NewRegistry()
	registry.MustRegister(s)
	own, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range own {
		out[0].families[f.GetName()] = f
	}
	return out
}

func metricsTable(all []pathFamilies) string {
	var b strings.Builder
	for _, p := range all {
		fmt.Fprintf(&b, "\n### %s\n\n| name | type | |\n| --- | --- | --- |\n", p.path)
		for _, name := range slices.Sorted(maps.Keys(p.families)) {
			if f := p.families[name]; !names(besides, name) && !names(whenUsed, name) {
				fmt.Fprintf(&b, "| `%s` | %s | %s |\n", name, strings.ToLower(f.GetType().String()), strings.ReplaceAll(f.GetHelp(), "|", `\|`))
			}
		}
	}
	return b.String() + "\n"
}

func TestDocs_MetricsPage(t *testing.T) {
	text, err := os.ReadFile(metricsPage)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- generated: go test -run TestDocs ./actors/stats -update -->\n", "<!-- end -->\n"
	before, rest, ok := strings.Cut(string(text), begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("docs/metrics.md lacks the marks %q and %q", begin, end)
	}
	want := before + begin + metricsTable(allFamilies(t)) + end + after
	if want == string(text) {
		return
	}
	if !*update {
		t.Fatal("docs/metrics.md is out of date: go test -run TestDocs ./actors/stats -update")
	}
	if err := os.WriteFile(metricsPage, []byte(want), 0o600); err != nil {
		t.Fatal(err)
	}
}

var metricName = regexp.MustCompile(`\b(?:kubelet|playlet|prober|container|pod|node|machine|volume|storage|csi|kubernetes)_[a-z0-9_]+`)

// grouping is the labels of an aggregation, which are no metrics.
var grouping = regexp.MustCompile(`\bby \([^)]*\)`)

// Each metric in an expression of the alerts or the dashboard exists, with the suffixes of its type.
func TestDocs_AlertsAndDashboardUseRealMetrics(t *testing.T) {
	known := map[string]bool{}
	for _, p := range allFamilies(t) {
		for name, f := range p.families {
			known[name] = true
			if f.GetType() == dto.MetricType_HISTOGRAM {
				known[name+"_bucket"], known[name+"_sum"], known[name+"_count"] = true, true, true
			}
		}
	}
	for _, file := range []string{"alerts.yaml", "dashboard.json"} {
		text, err := os.ReadFile("../../contrib/" + file)
		if err != nil {
			t.Fatal(err)
		}
		var doc any
		if err := yaml.Unmarshal(text, &doc); err != nil {
			t.Fatalf("contrib/%s: %v", file, err)
		}
		if strings.HasSuffix(file, ".json") && !json.Valid(text) {
			t.Fatalf("contrib/%s is not JSON", file)
		}
		found := expressions(doc)
		if len(found) < 5 {
			t.Errorf("contrib/%s: %d expressions found, want 5 at least", file, len(found))
		}
		for _, expr := range found {
			metrics := metricName.FindAllString(grouping.ReplaceAllString(expr, ""), -1)
			if len(metrics) == 0 && !strings.HasPrefix(expr, "up{") {
				t.Errorf("contrib/%s: no metric in %q", file, expr)
			}
			for _, name := range metrics {
				if !known[name] {
					t.Errorf("contrib/%s: there is no metric %s, in %q", file, name, expr)
				}
			}
		}
	}
}

// expressions returns the values of all fields named expr.
func expressions(doc any) (out []string) {
	switch d := doc.(type) {
	case map[string]any:
		for key, value := range d {
			if s, ok := value.(string); ok && key == "expr" {
				out = append(out, s)
			}
			out = append(out, expressions(value)...)
		}
	case []any:
		for _, value := range d {
			out = append(out, expressions(value)...)
		}
	}
	return out
}
