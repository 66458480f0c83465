// Package access decides who may use the node's API on port 10250, and how far that port and 10255 are reachable.
//
// A request is authenticated first: by a client certificate of authentication.x509.clientCAFile, which is read again when it
// changes, by a bearer token that the API server reviews (TokenReview), or as system:anonymous where that is on. Then each of its
// rights is asked for, in order, by a SubjectAccessReview; one that is allowed is enough. Both answers are cached for as long as
// the configuration says. k8s.io/apiserver's delegating authenticator and authorizer do the asking.
//
// A right is a verb on a sub-resource of this Node, as the kubelet of Kubernetes 1.36 has it (KEP-2862, rights.go). Playlet is
// stricter in one point: exec, attach, run and portForward need "create" by whatever method they are asked for. The kubelet
// grants them to WebSocket clients for "get", since a WebSocket begins with a GET.
//
// Nothing is open by default: see Exposed.
package access
