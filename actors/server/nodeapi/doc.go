// Package nodeapi holds the handlers of the node's API, on port 10250 and, read-only, on port 10255: the paths, methods,
// parameters and statuses are the kubelet's, so that the API server, kubectl and scrapers use them unchanged.
//
// They are plain http.Handlers behind authorization (actors/server/access). Pods come from the board that the pods actor
// publishes; logs and streams are served by actors/server/containers, as on the admin socket.
//
// Every answer has a deadline, except followed logs and streams, which have a limit: these end with the container or the client,
// or if one does not read. An unclean path is rejected and not redirected: the served path is the authorized one.
package nodeapi
