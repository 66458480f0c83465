package nodeapi

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"net/http/pprof"
	goruntime "runtime"
	"strconv"
	"strings"

	"k8s.io/apiserver/pkg/server/flagz"
	"k8s.io/apiserver/pkg/server/statusz"
	"k8s.io/component-base/compatibility"
	"k8s.io/utils/ptr"

	"github.com/playlet-dev/playlet/actors/server/containers"
)

// configz answers GET /configz: the configuration in force, in its versioned form. The runtime's cgroup driver takes precedence
// over the configured one (KEP-4033, kubernetes/kubernetes#134743).
func (a *api) configz(w http.ResponseWriter, _ *http.Request) error {
	shown := *a.conf.Kubelet
	if a.conf.CgroupDriver != nil {
		shown.CgroupDriver = cmp.Or(a.conf.CgroupDriver(), shown.CgroupDriver)
	}
	return containers.JSON(w, map[string]any{"kubeletconfig": shown})
}

// debug adds profiles and the log's verbosity.
func (a *api) debug() {
	if !ptr.Deref(a.conf.Kubelet.EnableProfilingHandler, true) {
		a.handle("/debug/pprof/", disabled("profiling endpoint is disabled."))
	} else {
		for name, h := range map[string]http.HandlerFunc{
			"": pprof.Index, "profile": pprof.Profile, "symbol": pprof.Symbol, "cmdline": pprof.Cmdline, "trace": pprof.Trace,
		} {
			a.handle("/debug/pprof/"+name, a.slowly(only(func(w http.ResponseWriter, r *http.Request) error {
				h(w, r)
				return nil
			}, http.MethodGet)))
		}
		if a.conf.Kubelet.EnableContentionProfiling {
			goruntime.SetBlockProfileRate(1)
		}
	}
	if !ptr.Deref(a.conf.Kubelet.EnableDebugFlagsHandler, true) {
		a.handle("/debug/flags/v", disabled("flags endpoint is disabled."))
		return
	}
	a.handle("/debug/flags/v", within(shortTimeout, only(a.verbosity, http.MethodPut)))
}

// verbosity answers PUT /debug/flags/v with the number in the body.
func (a *api) verbosity(w http.ResponseWriter, r *http.Request) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return refuse(http.StatusBadRequest, "error reading request body: "+err.Error())
	}
	text := strings.TrimSpace(string(body))
	v, err := strconv.ParseUint(text, 10, 8)
	if err != nil {
		return refuse(http.StatusBadRequest, fmt.Sprintf("the verbosity %q is not a number from 0 to 255", text))
	}
	a.conf.SetVerbosity(int(v))
	a.conf.Log.Info("the log's verbosity was changed", "v", v)
	_, _ = fmt.Fprintf(w, "successfully set klog.logging.verbosity to %d", v)
	return nil
}

// zpages adds /flagz and /statusz (KEP-4828, KEP-4827).
func (a *api) zpages() {
	const component = "kubelet"
	pages := http.NewServeMux()
	flagz.Install(pages, component, flagReader(a.conf.Flags))
	a.handle("/flagz", within(shortTimeout, pages))
	version := compatibility.NewEffectiveVersionFromString(a.conf.Kubernetes, "", "")
	statusz.Install(pages, component, statusz.NewRegistry(version, statusz.WithListedPaths(a.paths)))
	a.handle("/statusz", within(shortTimeout, pages))
}

type flagReader map[string]string

// GetFlagz implements flagz.Reader.
func (f flagReader) GetFlagz() map[string]string { return f }
