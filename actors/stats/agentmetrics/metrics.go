package agentmetrics

import (
	"context"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/apimachinery/pkg/types"
	compbasemetrics "k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/restclient" // rest_client_* of all clients of the API server
	"k8s.io/component-base/metrics/prometheus/slis"
	_ "k8s.io/component-base/metrics/prometheus/workqueue" // workqueue_* of the queues in libraries
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/internal/metrics"
	"github.com/playlet-dev/playlet/config"
	"github.com/playlet-dev/playlet/cri"
)

// Options are the sources of metrics.
type Options struct {
	NodeName string
	Board    *board.Board
	// Kubernetes is the release of the API, "1.36.3".
	Kubernetes string
	// Features are the feature gates.
	Features []config.Feature
	// Expiry returns the expiry of this node's certificates, by their names "client" and "serving". It may be nil and must not
	// block.
	Expiry func() map[string]time.Time
}

// Metrics counts the agent's operations under the names and labels of the kubelet's families. The table in the test of
// actors/stats lists the missing families with reasons. There is one per process. Safe for concurrent use.
type Metrics struct {
	opts     Options
	began    time.Time
	registry *prometheus.Registry // /metrics, in addition to the counters of libraries
	probing  *prometheus.Registry // /metrics/probes

	calls, failures       *prometheus.CounterVec
	callTime, sandboxTime *prometheus.HistogramVec
	sandboxErrors         *prometheus.CounterVec
	sandboxes             prometheus.Counter
	sandboxFailures       *prometheus.CounterVec
	userns                *prometheus.CounterVec
	usernsFailures        *prometheus.CounterVec
	containers            *prometheus.CounterVec
	probes                *prometheus.CounterVec
	probeTime             *prometheus.HistogramVec
	requests              *prometheus.CounterVec
	requestTime           *prometheus.HistogramVec
	inFlight              *prometheus.GaugeVec
	webSockets            *prometheus.CounterVec
	starts                starts

	mu     sync.Mutex
	probed map[types.UID]bool // pods with labels in the probe metrics
}

var (
	startBuckets = []float64{
		0.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600,
	}
	callBuckets = prometheus.ExponentialBuckets(0.005, 2.5, 14) // pulls take long
)

// New returns the process's metrics, all at zero.
func New(o Options) *Metrics {
	m := &Metrics{opts: o, began: time.Now(), registry: prometheus.NewRegistry(), probing: prometheus.NewRegistry(),
		probed: map[types.UID]bool{}}
	counter := func(r *prometheus.Registry, name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		r.MustRegister(c)
		if len(labels) == 0 {
			c.WithLabelValues()
		}
		return c
	}
	histogram := func(r *prometheus.Registry, name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
		r.MustRegister(h)
		return h
	}
	r := m.registry
	m.calls = counter(r, "kubelet_runtime_operations_total", "Calls to the container runtime.", "operation_type")
	m.failures = counter(r, "kubelet_runtime_operations_errors_total", "Failed calls to the container runtime.",
		"operation_type")
	m.callTime = histogram(r, "kubelet_runtime_operations_duration_seconds", "Duration of calls to the container runtime.",
		callBuckets, "operation_type")
	m.sandboxTime = histogram(r, "kubelet_run_podsandbox_duration_seconds", "Time to run a pod sandbox.",
		prometheus.DefBuckets, "runtime_handler")
	m.sandboxErrors = counter(r, "kubelet_run_podsandbox_errors_total", "Pod sandboxes that could not be run.", "runtime_handler")
	m.sandboxes = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "kubelet_started_pods_total", Help: "Pod sandbox starts attempted.",
	})
	r.MustRegister(m.sandboxes)
	m.sandboxFailures = counter(r, "kubelet_started_pods_errors_total", "Pod sandbox starts that failed.")
	m.userns = counter(r, "kubelet_started_user_namespaced_pods_total",
		"Starts attempted of pod sandboxes with a user namespace.")
	m.usernsFailures = counter(r, "kubelet_started_user_namespaced_pods_errors_total",
		"Starts of pod sandboxes with a user namespace that failed.")
	m.containers = counter(r, "kubelet_started_containers_total", "Container starts attempted.", "container_type")
	m.requests = counter(r, "kubelet_http_requests_total", "Requests to the node's API.",
		"method", "path", "server_type", "long_running")
	m.requestTime = histogram(r, "kubelet_http_requests_duration_seconds", "Duration of requests to the node's API.",
		prometheus.DefBuckets, "method", "path", "server_type", "long_running")
	m.webSockets = counter(r, "kubelet_websocket_streaming_requests_total",
		"WebSocket streams (exec, attach, port-forward) opened by clients of the node's API.", "subresource")
	m.inFlight = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "kubelet_http_inflight_requests",
		Help: "Requests to the node's API that are in progress."}, []string{"method", "path", "server_type", "long_running"})
	r.MustRegister(m.inFlight)
	m.probes = counter(m.probing, "prober_probe_total", "Probe runs, by result.",
		"probe_type", "result", "container", "pod", "namespace", "pod_uid")
	m.probeTime = histogram(m.probing, "prober_probe_duration_seconds", "Duration of probe runs.", prometheus.DefBuckets,
		"probe_type", "container", "pod", "namespace")
	m.starts = newStarts(m.began)
	r.MustRegister(m.starts.toRunning, m.starts.total, m.starts.own, m.starts.containers, m.starts.worker, m.starts.first,
		&boardView{m})
	return m
}

// WebSocketOpened counts a stream over a WebSocket, by its subresource: "exec", "attach" or "portforward".
func (m *Metrics) WebSocketOpened(subresource string) {
	m.webSockets.WithLabelValues(subresource).Inc()
}

// Register adds a collector of other packages to /metrics.
func (m *Metrics) Register(c prometheus.Collector) { m.registry.MustRegister(c) }

var words = regexp.MustCompile(`([a-z])([A-Z])`)

// operation returns the kubelet's name for a call of the CRI.
func operation(call string) string {
	if call == "UpdateContainerResources" {
		return "update_container"
	}
	call = strings.ReplaceAll(call, "PodSandbox", "Podsandbox")
	return strings.ToLower(words.ReplaceAllString(call, "${1}_${2}"))
}

// RuntimeCall counts one call of the container runtime. It is for cri.Options.
func (m *Metrics) RuntimeCall(o cri.Observation) {
	call, request, took, err := o.Call, o.Request, o.Took, o.Err
	name := operation(call)
	m.calls.WithLabelValues(name).Inc()
	m.callTime.WithLabelValues(name).Observe(took.Seconds())
	if err != nil {
		m.failures.WithLabelValues(name).Inc()
	}
	switch q := request.(type) {
	case *runtimeapi.RunPodSandboxRequest:
		m.sandboxes.Inc()
		m.sandboxTime.WithLabelValues(q.GetRuntimeHandler()).Observe(took.Seconds())
		options := q.GetConfig().GetLinux().GetSecurityContext().GetNamespaceOptions().GetUsernsOptions()
		if options.GetMode() == runtimeapi.NamespaceMode_POD && options != nil {
			m.userns.WithLabelValues().Inc()
			if err != nil {
				m.usernsFailures.WithLabelValues().Inc()
			}
		}
		if err != nil {
			m.sandboxErrors.WithLabelValues(q.GetRuntimeHandler()).Inc()
			m.sandboxFailures.WithLabelValues().Inc()
		}
	case *runtimeapi.CreateContainerRequest:
		uid, name := q.GetSandboxConfig().GetMetadata().GetUid(), q.GetConfig().GetMetadata().GetName()
		m.containers.WithLabelValues(m.containerType(uid, name)).Inc()
	}
}

// containerType returns the type of a pod's container, by its spec.
func (m *Metrics) containerType(uid, name string) string {
	for _, p := range m.opts.Board.Now().Pods {
		if string(p.Pod.UID) != uid {
			continue
		}
		for i := range p.Pod.Spec.InitContainers {
			if p.Pod.Spec.InitContainers[i].Name == name {
				return "init_container"
			}
		}
		for i := range p.Pod.Spec.EphemeralContainers {
			if p.Pod.Spec.EphemeralContainers[i].Name == name {
				return "ephemeral_container"
			}
		}
	}
	return "container"
}

// Probe describes one run of a probe.
type Probe struct {
	Type      string // "Liveness", "Readiness" or "Startup"
	Result    string // "successful", "failed" or "unknown"
	UID       types.UID
	Namespace string
	Pod       string
	Container string
	Took      time.Duration
}

// maxProbed limits the pods with labels in the probe metrics; beyond it, the labels of removed pods are dropped.
const maxProbed = 1024

// Probed counts one run of a probe.
func (m *Metrics) Probed(p Probe) {
	m.mu.Lock()
	fresh := !m.probed[p.UID]
	m.probed[p.UID] = true
	many := len(m.probed) > maxProbed
	m.mu.Unlock()
	m.probes.WithLabelValues(p.Type, p.Result, p.Container, p.Pod, p.Namespace, string(p.UID)).Inc()
	m.probeTime.WithLabelValues(p.Type, p.Container, p.Pod, p.Namespace).Observe(p.Took.Seconds())
	if fresh && many {
		m.forgetProbes()
	}
}

// forgetProbes drops the labels of removed pods, which would otherwise grow without a bound.
func (m *Metrics) forgetProbes() {
	here, names := map[types.UID]bool{}, map[[2]string]bool{}
	for _, p := range m.opts.Board.Now().Pods {
		here[p.Pod.UID], names[[2]string{p.Pod.Namespace, p.Pod.Name}] = true, true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for uid := range m.probed {
		if !here[uid] {
			delete(m.probed, uid)
			m.probes.DeletePartialMatch(prometheus.Labels{"pod_uid": string(uid)})
		}
	}
	all, err := m.probing.Gather()
	if err != nil {
		return
	}
	for _, family := range all {
		if family.GetName() != "prober_probe_duration_seconds" {
			continue
		}
		for _, metric := range family.GetMetric() {
			of := prometheus.Labels{}
			for _, l := range metric.GetLabel() {
				of[l.GetName()] = l.GetValue()
			}
			if !names[[2]string{of["namespace"], of["pod"]}] {
				m.probeTime.Delete(of)
			}
		}
	}
}

// Checked records the result of one check of /healthz, for /metrics/slis. Checks before the handler exists do not count.
func (*Metrics) Checked(name string, healthy bool) {
	status := slis.Success
	if !healthy {
		status = slis.Error
	}
	_ = slis.ObserveHealthcheck(context.Background(), name, "healthz", status) // cannot fail for a known status
}

// paths are counted individually; all others as "other", since a client can choose any path.
var paths = []string{
	"attach", "checkpoint", "configz", "containerLogs", "debug", "exec", "flagz", "healthz", "logs", "manifests", "metrics",
	"metrics/cadvisor", "metrics/probes", "metrics/resource", "pods", "portForward", "run", "runningpods", "spec",
	"stats", "statusz",
}

// methods are counted individually.
var methods = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete}

// longRunning are the paths that the kubelet marks as long-running.
var longRunning = []string{"attach", "debug", "exec"}

// HTTP counts the requests that next serves; serverType is the kubelet's term for the listener, "readwrite" or "readonly".
func (m *Metrics) HTTP(serverType string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := strings.Trim(r.URL.Path, "/")
		if first, _, below := strings.Cut(path, "/"); below && first != "metrics" { // unknown paths below metrics count as other
			path = first
		}
		if !slices.Contains(paths, path) {
			path = "other"
		}
		method := r.Method
		if !slices.Contains(methods, method) {
			method = "other"
		}
		long := slices.Contains(longRunning, path)
		of := []string{method, path, serverType, strconv.FormatBool(long)}
		m.requests.WithLabelValues(of...).Inc()
		under, began := m.inFlight.WithLabelValues(of...), time.Now()
		under.Inc()
		defer func() {
			under.Dec()
			m.requestTime.WithLabelValues(of...).Observe(time.Since(began).Seconds())
		}()
		next.ServeHTTP(w, r)
	})
}

// Handle registers the paths with the agent's metrics. /metrics includes the families of more.
func (m *Metrics) Handle(mux *http.ServeMux, more prometheus.Gatherer) {
	opts := promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}
	all := promhttp.HandlerFor(prometheus.Gatherers{m.registry, metrics.Registry, more, legacyregistry.DefaultGatherer}, opts)
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		m.starts.look(m.opts.Board.Now())
		all.ServeHTTP(w, r)
	})
	process := compbasemetrics.NewKubeRegistry()
	_ = compbasemetrics.RegisterProcessStartTime(process.Register) // fails without /proc
	probes := promhttp.HandlerFor(prometheus.Gatherers{m.probing, process}, opts)
	mux.HandleFunc("GET /metrics/probes", func(w http.ResponseWriter, r *http.Request) {
		m.forgetProbes()
		probes.ServeHTTP(w, r)
	})
	slis.SLIMetricsWithReset{}.Install(mux)
}
