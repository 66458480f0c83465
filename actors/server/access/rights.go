package access

import (
	"net/http"
	"path"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// rights are the sub-resources of nodes that allow a path and the paths below it. Each alone suffices; they are reviewed in this
// order. Other paths need nodes/proxy.
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

// streams start processes or connections. They need "create" for any method: a WebSocket begins with a GET, and the right to read
// must not include the right to run commands.
var streams = []string{"/exec", "/attach", "/run", "/portForward"}

// verbs maps HTTP methods to verbs. Any other method has the verb "", which only a rule for all verbs allows.
var verbs = map[string]string{
	http.MethodPost: "create", http.MethodGet: "get", http.MethodPut: "update", http.MethodPatch: "patch",
	http.MethodDelete: "delete",
}

// needed returns the rights for a request, in the order of review; one that is allowed suffices.
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

// below reports whether p is the path, or below it.
func below(p, of string) bool { return p == of || strings.HasPrefix(p, of+"/") }

// plainPath reports whether a path is clean: without "..", "." or empty elements.
func plainPath(p string) bool {
	return path.Clean(p) == p || p != "/" && path.Clean(p)+"/" == p
}
