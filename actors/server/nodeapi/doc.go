// Package nodeapi holds the handlers of the node's API, on port 10250 and, for reading alone, on port 10255: the paths,
// methods, parameters and statuses are the kubelet's, so that the API server, kubectl and scrapers use them unchanged.
//
// They are plain http.Handlers: who may ask is decided before them (actors/server/access). Pods come from the board that the
// pods actor publishes on; logs and streams are those of actors/server/containers, which the admin socket has too.
//
// Every answer has a deadline, but for logs that are followed and streams, of which there is a limit: these end with the
// container or the client, or where one does not read. A path that is not in its shortest form is refused and not redirected:
// what was authorized is what is served.
package nodeapi
