package agent

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/cri/sim"
)

// Options and words that kubectl's users type.
func TestTranscriptsOfHabits(t *testing.T) {
	r := newRig(t, sim.Options{
		WriteLogs: true, Images: map[string]sim.Image{"web:1": {Size: 12_345_678}},
		Script: sim.Script{ByContainer: map[string]sim.Sequence{
			"web-node/d":   {sim.Behaviour{Output: []string{"the sidecar"}}},
			"crash-node/c": {sim.Behaviour{Exits: true, Code: 3}},
		}},
	})
	t.Setenv("PLAYLET_SOCKET", filepath.Join(r.dir, "admin.sock"))
	labelled := func(name, labels string, containers ...string) string {
		text := strings.Replace(manifest(name, "Always", nil, containers), "metadata:\n", "metadata:\n  labels: {"+labels+"}\n", 1)
		return strings.Replace(text, "spec:\n", "spec:\n  dnsPolicy: Default\n", 1)
	}
	r.start(nil)
	if out, notes, code := r.playlet("images", "pull", "web:1"); code != 0 { // so that no pod does
		t.Fatal(out, notes)
	}
	r.write("web.yaml", labelled("web", "app: web, tier: front", "c web:1", "d web:1"))
	r.write("crash.yaml", labelled("crash", "app: crash", "c web:1"))
	r.file("objects.yaml", fmt.Sprintf(settings, "red")+"---\n"+
		"{apiVersion: v1, kind: Secret, metadata: {name: token, namespace: shop}, stringData: {b: s3cr3t, a: s3cr3t}}\n")
	sample := labelled("sample", "app: sample", "c web:1")
	r.file("front.yaml", sample+"---\napiVersion: v1\nkind: Service\nmetadata: {name: front}\nspec: {}\n")
	r.file("service.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: front}\nspec: {}\n")
	r.file("sample.yaml", strings.Replace(sample, "dnsPolicy: Default", "dnsPolicy: ClusterFirst", 1))
	r.untilPrinted([]string{"pods"}, "2/2", "CrashLoopBackOff")
	r.transcript("habits", []entry{
		{command: "run -f DIR/sample.yaml --wait"},
		{command: "pods --sort-by=.metadata.name --show-labels --no-headers", until: "CrashLoop"},
		{command: "pods --sort-by={.metadata.labels.tier} -o name"},
		{command: "pods web -L app,example.com/zone"},
		{command: "pods --field-selector=status.phase=Running,metadata.name!=crash-node -o name"},
		{command: "pods --field-selector=status.color=red"},
		{command: "pods --field-selector=status"},
		{command: "pods web --field-selector=status.phase=Running"},
		{command: "pods -w --sort-by=.metadata.name"},
		{command: "pods --sort-by={.metadata"},
		{command: "events --for pod/crash --types=Warning", until: "BackOff"},
		{command: "events --for Pod/web --types=normal --sort-by=.reason --no-headers", until: "Started"},
		{command: "events --for=pod/sample --types=Warning"}, // no clusterDNS is a note on the node
		{command: "explain node"},
		{command: "events --for=deployment/web"},
		{command: "events --for=node --types=Normal --no-headers", until: "Starting"},
		{command: "events --for=node/other"},
		{command: "events --sort-by=.color"},
		{command: "explain node/node"},
		{command: "describe deploy/web"},
		{command: "events --types=Bad"},
		{command: "logs web d"},
		{command: "logs web nope"},
		{command: "restart -l app=web"},
		{command: "restart -l app=nope"},
		{command: "restart web -l app=web"},
		{command: "rm sample --dry-run"},
		{command: "rm -l app=sample --dry-run=client --wait"},
		{command: "rm web --dry-run=server"},
		{command: "rm -f DIR/front.yaml --dry-run"}, // as run --skip-unsupported submits it
		{command: "rm -f DIR/service.yaml"},
		{command: "pods sample -o name"},
		{command: "run -f DIR/sample.yaml --dry-run"},
		{command: "run -f DIR/sample.yaml --dry-run=client"},
	}...)
	r.transcript("objects", []entry{
		{command: "objects -n none"},
		{command: "run -f DIR/objects.yaml"},
		{command: "objects"},
		{command: "objects -n shop --no-headers"},
		{command: "objects -n shop -o yaml"},
		{command: "__complete objects rm -n shop ''"},
		{command: "objects rm secret/token"},
		{command: "objects rm secret/token -n shop --dry-run"},
		{command: "objects rm secret/token -n shop"},
		{command: "objects rm settings"},
		{command: "objects rm configmap settings"},
		{command: "objects rm"},
	}...)
}
