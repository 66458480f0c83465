// Package apiserver is the actor that has the pods which the API server assigns to this node.
package apiserver

import "github.com/playlet-dev/playlet/actors/internal/apiclient"

// Clients are the clients towards the API server, which outlive every actor.
type Clients = apiclient.Clients

// ClientOptions are what the configuration says of traffic to the API server.
type ClientOptions = apiclient.Options

// Dial reads the kubeconfig and makes the clients; nothing is sent.
func Dial(o ClientOptions) (*Clients, error) { return apiclient.New(o) }
