//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/e2e/cluster"
	"github.com/playlet-dev/playlet/e2e/isolate"
	"github.com/playlet-dev/playlet/e2e/stack"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	certificatesv1 "k8s.io/api/certificates/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// point is metrics-server's record of a node or a container from one scrape: CPU in seconds, memory in bytes, and the time of its
// CPU.
type point struct {
	at                 time.Time
	start, cpu, memory float64
}

// scrape is one answer of /metrics/resource, as metrics-server takes it.
type scrape struct {
	node point
	pods map[string]map[string]*point // by namespace/name, and container
}

func takeScrape(t *testing.T, client *nodeClient) scrape {
	t.Helper()
	code, text, _, err := client.ask(http.MethodGet, "/metrics/resource")
	must(t, err)
	if code != http.StatusOK {
		t.Fatalf("%d %s", code, text)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	must(t, err)
	out := scrape{pods: map[string]map[string]*point{}}
	for name, family := range families {
		of, what, _ := strings.Cut(name, "_")
		for _, m := range family.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			p := &out.node
			if of == "container" {
				pod := labels["namespace"] + "/" + labels["pod"]
				if out.pods[pod] == nil {
					out.pods[pod] = map[string]*point{}
				}
				if p = out.pods[pod][labels["container"]]; p == nil {
					p = &point{}
					out.pods[pod][labels["container"]] = p
				}
			} else if of != "node" {
				continue
			}
			switch value := m.GetCounter().GetValue() + m.GetGauge().GetValue(); what {
			case "cpu_usage_seconds_total":
				p.cpu, p.at = value, time.UnixMilli(m.GetTimestampMs())
			case "memory_working_set_bytes":
				p.memory = value
			case "start_time_seconds":
				p.start = value
			}
		}
	}
	for pod, containers := range out.pods { // metrics-server omits a pod with incomplete figures
		for _, p := range containers {
			if p.cpu == 0 || p.memory == 0 || p.start == 0 {
				delete(out.pods, pod)
			}
		}
	}
	return out
}

// usage returns the usage between two scrapes, in the form of metrics.k8s.io.
func usage(before, last *point) map[string]any {
	cores := (last.cpu - before.cpu) / last.at.Sub(before.at).Seconds()
	return map[string]any{"cpu": resource.NewScaledQuantity(int64(cores*1e9), resource.Nano),
		"memory": resource.NewQuantity(int64(last.memory), resource.BinarySI)}
}

// serveMetrics serves metrics.k8s.io from two scrapes of a node through the API server, until the test ends.
func serveMetrics(k kubectl, node string, before, last scrape) {
	k.Helper()
	const base = "/apis/metrics.k8s.io/v1beta1"
	object := func(kind string, more map[string]any) map[string]any {
		more["kind"], more["apiVersion"] = kind, "metrics.k8s.io/v1beta1"
		return more
	}
	of := func(kind, namespace, name string, a, b *point, more map[string]any) map[string]any {
		more["metadata"] = map[string]any{"name": name, "namespace": namespace}
		more["timestamp"], more["window"] = b.at.Format(time.RFC3339), b.at.Sub(a.at).String()
		return object(kind, more)
	}
	mux := http.NewServeMux()
	answer := func(path string, value func(r *http.Request) map[string]any) {
		mux.HandleFunc("GET "+base+path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(value(r))
		})
	}
	answer("", func(*http.Request) map[string]any {
		return map[string]any{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "metrics.k8s.io/v1beta1", "resources": []any{
			metav1.APIResource{Name: "nodes", Kind: "NodeMetrics", Verbs: metav1.Verbs{"get", "list"}},
			metav1.APIResource{Name: "pods", Kind: "PodMetrics", Namespaced: true, Verbs: metav1.Verbs{"get", "list"}}}}
	})
	answer("/nodes", func(*http.Request) map[string]any {
		return object("NodeMetricsList", map[string]any{"items": []any{
			of("NodeMetrics", "", node, &before.node, &last.node, map[string]any{"usage": usage(&before.node, &last.node)})}})
	})
	answer("/namespaces/{namespace}/pods", func(r *http.Request) map[string]any {
		items := []any{}
		for pod, containers := range last.pods {
			namespace, name, _ := strings.Cut(pod, "/")
			var all []any
			var a, b *point
			for container, p := range containers {
				if was := before.pods[pod][container]; was != nil && was.start == p.start {
					a, b = was, p
					all = append(all, map[string]any{"name": container, "usage": usage(was, p)})
				}
			}
			if namespace == r.PathValue("namespace") && len(all) == len(containers) {
				items = append(items, of("PodMetrics", namespace, name, a, b, map[string]any{"containers": all}))
			}
		}
		return object("PodMetricsList", map[string]any{"items": items})
	})
	server := httptest.NewUnstartedServer(mux)
	must(k.T, server.Listener.Close()) // the API server refuses loopback addresses
	var err error
	server.Listener, err = new(net.ListenConfig).Listen(k.Context(), "tcp", isolate.NodeIP+":0")
	must(k.T, err)
	server.StartTLS()
	k.Cleanup(server.Close)
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	must(k.T, err)
	// The name is the address: there is no DNS, and no kube-proxy for a Service's address.
	text := fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: metrics, namespace: %[1]s}
spec: {type: ExternalName, externalName: %[2]s, ports: [{port: %[3]s}]}
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1beta1.metrics.k8s.io}
spec:
  group: metrics.k8s.io
  version: v1beta1
  groupPriorityMinimum: 100
  versionPriority: 100
  insecureSkipTLSVerify: true
  service: {name: metrics, namespace: %[1]s, port: %[3]s}`, k.ns, isolate.NodeIP, port)
	if _, errs, code := k.run(text, "create", "-f", "-"); code != 0 {
		k.Fatal(errs)
	}
	k.Cleanup(func() {
		must(k.T, k.c.Admin.Discovery().RESTClient().Delete().AbsPath("/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.metrics.k8s.io").
			Do(context.WithoutCancel(k.Context())).Error())
	})
	await(k.T, func() error {
		groups, err := k.c.Admin.Discovery().ServerGroups()
		if err == nil && !slices.ContainsFunc(groups.Groups, func(g metav1.APIGroup) bool { return g.Name == "metrics.k8s.io" }) {
			err = fmt.Errorf("there is no metrics.k8s.io among %v", groups.Groups)
		}
		return err
	})
}

// reading is the kernel's figures of a cgroup.
type reading struct {
	at          time.Time
	cpu, memory float64
}

// readings returns the figures of cgroups, by any name.
func readings(t *testing.T, groups map[string]string) map[string]reading {
	t.Helper()
	out := map[string]reading{}
	for name, group := range groups {
		number := func(v1, v2, key string) float64 {
			text, err := os.ReadFile(groupFile(group, v1, v2))
			must(t, err)
			words := strings.Fields(string(text))
			n, err := strconv.ParseFloat(words[slices.Index(words, key)+1], 64) // the first where there is no key
			must(t, err)
			return n
		}
		stat := "total_inactive_file"
		if unified() {
			stat = "inactive_file"
		}
		out[name] = reading{time.Now(), cpuSeconds(t, group),
			number("memory/memory.usage_in_bytes", "memory.current", "") - number("memory/memory.stat", "memory.stat", stat)}
	}
	return out
}

// scrapeBetween scrapes a node until the whole answer was read for it, and returns the kernel's figures before and after.
func scrapeBetween(t *testing.T, client *nodeClient, pod string, groups map[string]string) (out scrape, before, after map[string]reading) {
	t.Helper()
	await(t, func() error {
		before = readings(t, groups)
		began := time.Now()
		out = takeScrape(t, client)
		after = readings(t, groups)
		all := []*point{&out.node}
		for name := range groups {
			if name != "" {
				all = append(all, out.pods[pod][name])
			}
		}
		for _, p := range all {
			if p == nil || !p.at.After(began) {
				return fmt.Errorf("not all of it is of now: %+v, %+v", out.node, out.pods)
			}
		}
		return nil
	})
	return out, before, after
}

// kubectl top agrees with the kernel on the node and its pods, with figures scraped as metrics-server does.
func TestKubectlTop(t *testing.T) {
	c := cluster.Shared(t)
	n, ns := c.Node(t), c.Namespace(t)
	s, a := inCluster(t, c, n, func(a *stack.Agent) { a.Config["serverTLSBootstrap"] = true })
	must(t, c.Sign(t.Context(), awaitCSR(t, c, n.Name, certificatesv1.KubeletServingSignerName), time.Now().Add(-time.Hour),
		time.Now().AddDate(1, 0, 0)))
	client := newNodeClient(t, c, a, "", "", account(t, c, ns, "metrics-server",
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes/metrics"}, Verbs: []string{"get"}}))
	await(t, func() error { _, _, _, err := client.ask(http.MethodGet, "/metrics/resource"); return err }) // it has its certificate

	create(t, c, ns, n.Name, manifest(s, "idle", oneSecond))
	create(t, c, ns, n.Name, manifest(s, "p", withTool(t, `
terminationGracePeriodSeconds: 1
containers:
- {name: burns, image: HELLO, command: [/tool/run, tool, burn, '64'], TOOL, resources: {limits: {cpu: 200m}}}
- {name: sleeps, image: HELLO, args: [sleep]}`, t.TempDir())))
	awaitAPIPod(t, c, ns, "idle", ready)
	p := awaitAPIPod(t, c, ns, "p", ready)
	groups := map[string]string{"": "/"} // the node
	for _, st := range p.Status.ContainerStatuses {
		groups[st.Name] = groupOf(t, s, strings.TrimPrefix(st.ContainerID, "containerd://"))
	}
	first, before1, after1 := scrapeBetween(t, client, ns+"/p", groups)
	await(t, func() error {
		if now := readings(t, groups)["burns"]; now.cpu < after1["burns"].cpu+0.5 || now.memory < 64<<20 {
			return fmt.Errorf("it has burnt too little: %+v, and before %+v", now, after1["burns"])
		}
		return nil
	})
	last, before2, after2 := scrapeBetween(t, client, ns+"/p", groups)

	k := kubectl{t, c, ns}
	serveMetrics(k, n.Name, first, last)
	rows := map[string][]string{} // by name, or pod/container
	for _, args := range [][]string{{"top", "node"}, {"top", "pod", "--containers"}} {
		out, errs, code := k.run("", args...)
		if code != 0 {
			t.Fatalf("kubectl %v: %s%s", args, out, errs)
		}
		t.Logf("kubectl %s:\n%s", strings.Join(args, " "), out)
		for line := range strings.Lines(out) {
			words := strings.Fields(line)
			if args[1] == "node" { // without the parts of a hundred
				words = append([]string{words[0]}, words[1], words[3])
			} else {
				words = append([]string{words[0] + "/" + words[1]}, words[2:]...)
			}
			rows[words[0]] = words[1:]
		}
	}
	if rows["idle/main"] == nil {
		t.Errorf("the other pod is not told of: %v", rows)
	}
	for name, of := range map[string]string{n.Name: "", "p/burns": "burns", "p/sleeps": "sleeps"} {
		var milli, mebibytes float64
		if _, err := fmt.Sscanf(strings.Join(rows[name], " "), "%fm %fMi", &milli, &mebibytes); err != nil {
			t.Errorf("%s: %v, %v", name, rows[name], err)
			continue
		}
		a0, a1, b0, b1 := before1[of], after1[of], before2[of], after2[of]
		least := 1000 * (b0.cpu - a1.cpu) / b1.at.Sub(a0.at).Seconds()
		most := 1000 * (b1.cpu - a0.cpu) / b0.at.Sub(a1.at).Seconds()
		t.Logf("%s: %gm and %gMi; by the kernel's figures %.1fm to %.1fm, and %.1fMi, %.1fMi", name, milli, mebibytes, least, most,
			b0.memory/(1<<20), b1.memory/(1<<20))
		if milli < math.Floor(least*0.95)-1 || milli > math.Ceil(most*1.05)+1 {
			t.Errorf("%s uses %gm, and by the kernel's figures %.1fm to %.1fm", name, milli, least, most)
		}
		slack := 2.0
		if of == "" { // other processes on this machine use it, too
			slack = 256
		}
		if mebibytes < min(b0.memory, b1.memory)/(1<<20)-slack || mebibytes > max(b0.memory, b1.memory)/(1<<20)+slack {
			t.Errorf("%s uses %gMi, and by the kernel's figures %.0f and %.0f bytes", name, mebibytes, b0.memory, b1.memory)
		}
	}
}
