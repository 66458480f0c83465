package admin

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/chaos"
	"github.com/playlet-dev/playlet/supervisors/trace"
)

// Route is one route of the API. Its OpenAPI description is generated from these fields.
type Route struct {
	Method, Path string // as http.ServeMux takes them
	Summary      string
	// Query has the parameters by name, with pointers to values of their types. A request with others is rejected.
	Query api.Params
	// Body and Answer are values of the types in JSON, or nil. The type string means text: a manifest, or a log.
	Body, Answer any
	// Line is a value of the type of each line of JSON, if the parameter watch or follow asks for a stream.
	Line any
	// Upgrade marks a request whose connection is upgraded to one of Kubernetes' streaming protocols.
	Upgrade bool

	handle func(*handlers, http.ResponseWriter, *http.Request) error
}

// handler returns the handler of the route.
func (route Route) handler(h *handlers) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		for name := range r.URL.Query() {
			if _, ok := route.Query[name]; !ok {
				return bad(fmt.Errorf("unknown parameter %q", name))
			}
		}
		return route.handle(h, w, r)
	}
}

// Routes returns all routes, sorted by path.
func Routes() []Route {
	all := slices.Concat(podRoutes(), nodeRoutes(), submissionRoutes())
	slices.SortFunc(all, func(a, b Route) int { return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Method, b.Method)) })
	return all
}

// routes returns the handlers by method and path.
func (h *handlers) routes() map[string]handler {
	out := map[string]handler{}
	for _, r := range Routes() {
		out[r.Method+" "+r.Path] = r.handler(h)
	}
	return out
}

func podRoutes() []Route {
	return []Route{
		{
			Method: "GET", Path: "/v1/pods", handle: (*handlers).pods, Answer: api.Pods{}, Line: api.Change{},
			Summary: "List the pods with their status and the agent's state of them; with watch, all at first, then each change",
			Query:   api.Params{"watch": new(bool), "brief": new(bool), "namespace": new(string), "name": new(string)},
		},
		{
			Method: "GET", Path: "/v1/events", handle: (*handlers).events, Answer: v1.EventList{}, Line: v1.EventList{},
			Summary: "List the last Events of this node; with watch, the new and repeated ones, too",
			Query:   api.Params{"watch": new(bool), "namespace": new(string), "name": new(string)},
		},
		{
			Method: "GET", Path: "/v1/explain/{kind}", handle: (*handlers).explain, Answer: api.Explanations{},
			Summary: "Explain the state of the node; the kind is node", Query: api.Params{"namespace": new(string)},
		},
		{
			Method: "GET", Path: "/v1/explain/{kind}/{name}", handle: (*handlers).explain, Answer: api.Explanations{},
			Summary: "Explain the state of the pods of this name; the kind is pod", Query: api.Params{"namespace": new(string)},
		},
		{
			Method: "GET", Path: "/v1/trace", handle: (*handlers).trace, Answer: api.Trace{}, Line: api.Trace{},
			Summary: "List the recorded messages of a pod, an actor or all; with follow, new ones, too",
			Query:   new(api.TraceOptions).Params(),
		},
		{
			Method: "GET", Path: "/v1/criticalpath", handle: (*handlers).criticalPath, Answer: trace.Path{},
			Summary: "List the parts of a pod's start time", Query: api.Params{"pod": new(string), "namespace": new(string)},
		},
		{
			Method: "GET", Path: "/v1/logs/{namespace}/{pod}", handle: (*handlers).logs, Answer: "",
			Summary: "Read the log of a container", Query: new(api.LogOptions).Params(),
		},
		{
			Method: "POST", Path: "/v1/exec/{namespace}/{pod}", handle: (*handlers).exec, Upgrade: true,
			Summary: "Run a command in a container", Query: new(api.ExecOptions).Params(),
		},
		{
			Method: "POST", Path: "/v1/attach/{namespace}/{pod}", handle: (*handlers).attach, Upgrade: true,
			Summary: "Attach to a container", Query: new(api.ExecOptions).Params(),
		},
		{
			Method: "POST", Path: "/v1/portforward/{namespace}/{pod}", handle: (*handlers).portForward, Upgrade: true,
			Summary: "Forward ports to a pod", Query: api.Params{"uid": new(string)},
		},
		{
			Method: "POST", Path: "/v1/restart/{uid}", handle: (*handlers).restart, Body: map[string]string{},
			Answer: api.Restarts{}, Summary: "Restart containers of a pod; the body has their IDs by name",
		},
	}
}

func nodeRoutes() []Route {
	return []Route{
		{
			Method: "GET", Path: "/v1/version", handle: (*handlers).version, Answer: api.Version{},
			Summary: "Get the agent's version",
		},
		{Method: "GET", Path: "/v1/actors", handle: (*handlers).actors, Answer: api.Actors{}, Summary: "List the actors"},
		{
			Method: "GET", Path: "/v1/actors/{actor...}", handle: (*handlers).inspect, Answer: api.Inspection{},
			Summary: "Inspect one actor; the path is its path in the tree",
		},
		{
			Method: "GET", Path: "/v1/figures", handle: (*handlers).figures, Answer: api.Figures{},
			Summary: "Measure CPU and memory of the node and its pods; with pod, all figures of the pod with this UID",
			Query:   api.Params{"pod": new(string)},
		},
		{
			Method: "GET", Path: "/v1/figures/history", handle: (*handlers).history, Answer: api.History{},
			Summary: "List the figures recorded in the last minutes for the node or the pod with this UID",
			Query:   api.Params{"pod": new(string)},
		},
		{
			Method: "GET", Path: "/v1/observatory", handle: (*handlers).observatory, Answer: api.Observatory{},
			Summary: "Get the address of the web page",
		},
		{Method: "GET", Path: "/v1/images", handle: (*handlers).images, Answer: api.Images{}, Summary: "List the images"},
		{
			Method: "POST", Path: "/v1/images", handle: (*handlers).pullImage, Answer: messages.ImageFetched{},
			Summary: "Pull an image and get the progress; repeat it with the same id until the pull has ended",
			Query:   api.Params{"id": new(string), "image": new(string)},
		},
		{
			Method: "DELETE", Path: "/v1/images/{id}", handle: (*handlers).removeImage, Answer: messages.ImageRemoved{},
			Summary: "Remove an image that is not in use; with collect, only if the image collection may remove it",
			Query:   api.Params{"collect": new(bool)},
		},
		{
			Method: "GET", Path: "/v1/chaos", handle: (*handlers).chaosRules, Answer: api.ChaosRules{},
			Summary: "List the chaos rules",
		},
		{
			Method: "POST", Path: "/v1/chaos", handle: (*handlers).addChaos, Body: chaos.Rule{}, Answer: api.ChaosRule{},
			Summary: "Add a chaos rule; with dryRun, only list the actors that it selects",
			Query:   api.Params{"dryRun": new(bool)},
		},
		{
			Method: "DELETE", Path: "/v1/chaos", handle: (*handlers).stopChaos, Answer: api.ChaosRules{},
			Summary: "End all chaos rules",
		},
		{
			Method: "DELETE", Path: "/v1/chaos/{id}", handle: (*handlers).stopChaos, Answer: api.ChaosRules{},
			Summary: "End one chaos rule",
		},
	}
}

func submissionRoutes() []Route {
	return []Route{
		{
			Method: "GET", Path: "/v1/objects", handle: (*handlers).objects, Answer: api.SubmittedObjects{},
			Summary: "List the submitted ConfigMaps and Secrets, without their values",
		},
		{
			Method: "GET", Path: "/v1/submissions", handle: (*handlers).submissions, Answer: api.Submissions{},
			Summary: "List the submitted pods",
		},
		{
			Method: "POST", Path: "/v1/submissions", handle: (*handlers).submit, Body: "", Answer: api.SubmitReply{},
			Summary: "Submit the pods, ConfigMaps and Secrets of a manifest",
			Query:   api.Params{"replace": new(bool), "dryRun": new(bool)},
		},
		{
			Method: "GET", Path: "/v1/submissions/{namespace}/{name}", handle: (*handlers).submission,
			Answer: messages.Submission{}, Summary: "Get a submitted pod",
		},
		{
			Method: "PUT", Path: "/v1/submissions/{namespace}/{name}", handle: (*handlers).submitOne, Body: "",
			Answer: api.SubmitReply{}, Summary: "Submit the manifest of one pod in place of the previous one",
		},
		{
			Method: "DELETE", Path: "/v1/submissions/{namespace}/{name}", handle: (*handlers).withdraw,
			Answer: api.SubmitReply{}, Summary: "Withdraw a submitted pod, or with kind a ConfigMap or Secret",
			Query: api.Params{"kind": new(string), "grace": new(*int64), "exact": new(bool), "dryRun": new(bool)},
		},
	}
}
