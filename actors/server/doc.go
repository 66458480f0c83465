// Package server is the actor that lets people and programs look at the node, and the listeners that it keeps open: the admin
// socket, for root; /healthz, for probes of the loopback, which is told no details; and the node's API on ports 10250 (by TLS,
// for those whom access lets in) and 10255 (for reading, off by default); cAdvisor's pages and API, on 4194 on old kubelets
// (off by default); the observatory, a page on the admin socket and, for who has its token, on a port (off by default); and the
// kubelet's sockets for root: where device plugins register, and the pod resources API.
//
// HTTP handlers are not actors. The listeners and their open streams belong to a Listeners, made once for the process,
// and outlive a restart of the actor; the actor's part is to have opened what is not open. Handlers read the board that
// the pods actor publishes on, or ask an actor with a deadline: one that does not answer is named in a 503.
//
// Each listener is an endpoint behind a door (endpoint.go, socket.go), with a limit of connections (connections.go). Their
// handlers live in packages of their own: admin, cadvisor, healthz, nodeapi, observatory, podresources, and containers for what
// they share.
//
// What clients may take of a port is bounded before anything else: connections (idle ones give way), headers, each and all
// together (connections.go), and requests a second of each address (clients.go). Then each handler has a deadline, answers that
// are made in memory take turns, and logs and streams have a number that is refused beyond, for the admin socket one of its own.
// Streams belong to the process: no actor's restart ends them.
package server
