// Package server is the actor for clients on the node, and its listeners: the admin socket, for root; /healthz, for probes on the
// loopback, without details; the node's API on ports 10250 (TLS, for clients admitted by access) and 10255 (read-only, off by
// default); cAdvisor's pages and API, on 4194 on old kubelets (off by default); the observatory, a page on the admin socket and,
// with a token, on a port (off by default); and the kubelet's sockets for root: registration of device plugins, the pod
// resources API, and the Pods API (off by default).
//
// HTTP handlers are not actors. The listeners and their open streams belong to a Listeners, which is created once per process and
// outlives a restart of the actor; the actor opens listeners that are closed. Handlers read the board that the pods actor
// publishes, or ask an actor with a deadline: a 503 names an actor that does not answer.
//
// Each listener is an endpoint with an opener (listener.go, socket.go) and a limit of connections (connections.go). Their
// handlers are in separate packages: admin, cadvisor, healthz, nodeapi, observatory, podresources, podsapi, and containers for
// shared code.
//
// Clients of a port are limited first of all: connections (idle ones give way), headers, each and in total (connections.go), and
// requests per second and address (clients.go). Then each handler has a deadline, answers made in memory take turns, and logs and
// streams have a limit, with a separate one for the admin socket. Streams belong to the process: no actor's restart ends them.
package server
