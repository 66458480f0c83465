// Package access decides which clients may use the node's API on port 10250, and from where that port and 10255 are reachable.
//
// A request is authenticated first: by a client certificate of authentication.x509.clientCAFile, which is read again when it
// changes, by a bearer token that the API server reviews (TokenReview), or as system:anonymous if that is enabled. Then each of
// its rights is reviewed in order by a SubjectAccessReview; one that is allowed suffices. Both results are cached as configured.
// k8s.io/apiserver's delegating authenticator and authorizer make the requests.
//
// A right is a verb on a sub-resource of this Node, as in the kubelet of Kubernetes 1.36 (KEP-2862, rights.go). Playlet is
// stricter in one point: exec, attach, run and portForward need "create" for any method. The kubelet grants them to WebSocket
// clients for "get", since a WebSocket begins with a GET.
//
// Nothing is open by default: see Exposed.
package access
