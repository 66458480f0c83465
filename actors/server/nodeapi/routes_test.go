package nodeapi

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/utils/ptr"
)

// kubelets are the paths of the kubelet of Kubernetes 1.36 on port 10250, with their methods (pkg/kubelet/server, and
// k8s.io/component-base for /metrics/slis), and a pod of the rig in place of parameters. In addition there are /spec/ for clients
// of old kubelets and, if enabled, /manifests.
const kubelets = `
GET /healthz
GET /healthz/ping
GET /healthz/log
GET /healthz/syncloop
GET /healthz/device-plugin
GET /pods
GET /stats/summary
POST /stats/summary
GET /metrics
GET /metrics/cadvisor
GET /metrics/resource
GET /metrics/probes
GET /metrics/slis
DELETE /metrics/slis
POST /run/ns/web/app
POST /run/ns/web/u1/app
GET /exec/ns/web/app
POST /exec/ns/web/app
GET /exec/ns/web/u1/app
POST /exec/ns/web/u1/app
GET /attach/ns/web/app
POST /attach/ns/web/app
GET /attach/ns/web/u1/app
POST /attach/ns/web/u1/app
GET /portForward/ns/web
POST /portForward/ns/web
GET /portForward/ns/web/u1
POST /portForward/ns/web/u1
GET /containerLogs/ns/web/app
GET /runningpods/
POST /checkpoint/ns/web/app
GET /logs/
GET /logs/syslog
GET /debug/pprof/
GET /debug/pprof/cmdline
GET /debug/pprof/heap
GET /debug/pprof/profile
GET /debug/pprof/symbol
GET /debug/pprof/trace
PUT /debug/flags/v
GET /configz
GET /flagz
GET /statusz
`

// Each path of the kubelet has a handler for the method.
func TestEveryPathOfTheKubelet(t *testing.T) {
	served := ""
	r := newRig(t, func(c *Config) {
		mark := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { served = r.Method + " " + r.URL.Path })
		c.Healthz, c.Figures, c.Kubelet.EnableSystemLogQuery = mark, mark, ptr.To(true)
	})
	if err := os.WriteFile(filepath.Join(r.conf.SystemLogs, "syslog"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(kubelets) {
		method, path, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok {
			continue
		}
		query := ""
		if strings.HasPrefix(path, "/debug/pprof/profile") || strings.HasPrefix(path, "/debug/pprof/trace") {
			query = "?seconds=1"
		}
		code, text := r.ask(method, path+query, "2")
		other := strings.HasPrefix(path, "/healthz") || strings.HasPrefix(path, "/metrics") || strings.HasPrefix(path, "/stats/")
		if code == http.StatusNotFound && text == "404 page not found\n" || code == http.StatusMethodNotAllowed || other && served != method+" "+path {
			t.Errorf("%s %s: %d %s", method, path, code, text)
		}
	}
}
