// Package server is the actor that lets people and programs look at the node: the admin socket, for root, and /healthz,
// for probes of the loopback, which is told no details.
//
// HTTP handlers are not actors. The listeners and their open streams belong to a Listeners, made once for the process,
// and outlive a restart of the actor; the actor's part is to have opened what is not open. Handlers read the board that
// the pods actor publishes on, or ask an actor with a deadline: one that does not answer is named in a 503.
//
// playlet exec speaks Kubernetes' protocol for remote commands (SPDY, v4) over the admin socket. The agent asks the
// runtime for the URL of its streaming server and joins the two connections itself: who has the URL has the command, so
// nobody gets it. A stream belongs to the process, not to the actor.
package server
