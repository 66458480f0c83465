package main

import (
	"fmt"
	"runtime"
	"slices"

	"github.com/playlet-dev/playlet/actors/apiserver"
	"github.com/playlet-dev/playlet/config"
)

// dialAPI makes the clients towards the API server; nil where the node is on its own. Nothing is sent.
func dialAPI(node *config.Node) (*apiserver.Clients, error) {
	if node.Standalone() {
		return nil, nil
	}
	k := node.Kubelet
	return apiserver.Dial(apiserver.ClientOptions{
		Kubeconfig: node.KubeconfigPath, UserAgent: fmt.Sprintf("playlet/%s (%s/%s)", version(), runtime.GOOS, runtime.GOARCH),
		ContentType: k.ContentType,
		QPS:         unbounded(k.KubeAPIQPS, 50), Burst: int(k.KubeAPIBurst),
		EventQPS: unbounded(k.EventRecordQPS, 50), EventBurst: int(k.EventBurst),
		HeartbeatTimeout: k.NodeStatusUpdateFrequency.Duration,
	})
}

// unbounded is a rate as client-go takes it: there 0 is a default of its own, and what is negative no bound.
func unbounded(qps *int32, otherwise int32) float32 {
	if v := deref(qps, otherwise); v != 0 {
		return float32(v)
	}
	return -1
}

// clusterTroubles are sentences for health that say what goes wrong between this node and its cluster, or with what the cluster is
// told of it.
func (a *agent) clusterTroubles() []string {
	out := slices.Concat(a.registered.Load().Problems, a.measured.Problems())
	for _, t := range a.written.Load() {
		out = append(out, t.String())
	}
	return append(out, a.told.Problems()...)
}
