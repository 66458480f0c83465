// Package apiserver is the actor that has the pods which the API server assigns to this node.
//
// An object whose spec, labels, annotations, deletion and readiness conditions did not change keeps its pointer, so that
// the statuses which the agent writes itself change nothing. A pod with a deletionTimestamp is sent as one that ends, with
// the grace period of the object, also when that gets shorter.
//
// The watch is a reflector of client-go (watch-list, protobuf) and belongs to the process. The first list is never one
// from a cache of unknown age, which could lack pods that run here. Before a watch resumes, the newest resource version is
// read: after a restored backup it is an older one, and everything is listed anew. Until the first list, pods that are
// found running are left as they are.
package apiserver

import "github.com/playlet-dev/playlet/actors/internal/apiclient"

// Clients are the clients towards the API server, which outlive every actor.
type Clients = apiclient.Clients

// ClientOptions are what the configuration says of traffic to the API server.
type ClientOptions = apiclient.Options

// Dial makes the clients; nothing is sent.
func Dial(o ClientOptions) (*Clients, error) { return apiclient.New(o) }
