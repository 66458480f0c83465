package access

import (
	"net/http"
	"path"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// rights are the sub-resources of nodes that allow a path and what is below it. Each alone is enough; they are asked for in this
// order. What is not in the table needs nodes/proxy.
//
// Sources: KEP-2862 and the documentation of the kubelet's authorization in Kubernetes 1.36. /spec is older kubelets'. /manifests
// is Playlet's own, and nodes/proxy alone does not allow it.
var rights = []struct {
	path         string
	subresources []string
}{
	{"/stats", []string{"stats"}},
	{"/metrics", []string{"metrics"}},
	{"/logs", []string{"log"}},
	{"/spec", []string{"spec"}},
	{"/checkpoint", []string{"checkpoint"}},
	{"/statusz", []string{"statusz"}},
	{"/flagz", []string{"configz"}},
	{"/manifests", []string{"manifests"}},
	{"/pods", []string{"pods", "proxy"}},
	{"/runningpods", []string{"pods", "proxy"}},
	{"/healthz", []string{"healthz", "proxy"}},
	{"/configz", []string{"configz", "proxy"}},
}

// streams begin something in a container. They need "create" by any method: a WebSocket begins with a GET, and the right to read
// must not become the right to run commands.
var streams = []string{"/exec", "/attach", "/run", "/portForward"}

// verbs are those of HTTP methods. Any other method has the verb "", which only a rule for all verbs allows.
var verbs = map[string]string{
	http.MethodPost: "create", http.MethodGet: "get", http.MethodPut: "update", http.MethodPatch: "patch",
	http.MethodDelete: "delete",
}

// needed are what the API server is asked about a request, in order; one that is allowed is enough.
func needed(node string, u user.Info, method, requestPath string) []authorizer.Attributes {
	verb, subresources := verbs[method], []string{"proxy"}
	for _, p := range streams {
		if below(requestPath, p) {
			verb = "create"
		}
	}
	for _, r := range rights {
		if below(requestPath, r.path) {
			subresources = r.subresources
		}
	}
	out := make([]authorizer.Attributes, 0, len(subresources))
	for _, s := range subresources {
		out = append(out, authorizer.AttributesRecord{
			User: u, Verb: verb, APIVersion: "v1", Resource: "nodes", Subresource: s, Name: node, ResourceRequest: true,
			Path: requestPath,
		})
	}
	return out
}

// below says that p is the path, or below it.
func below(p, of string) bool { return p == of || strings.HasPrefix(p, of+"/") }

// plainPath says that a path means what it reads as: no "..", "." or empty element leads elsewhere.
func plainPath(p string) bool {
	return path.Clean(p) == p || p != "/" && path.Clean(p)+"/" == p
}
