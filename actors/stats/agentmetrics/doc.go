// Package agentmetrics counts what the agent did, under the names and labels of the kubelet's families: calls of the runtime,
// runs of probes, requests to the node's API, and how long pods took to start; and it tells of what the board has.
// [Metrics] serves /metrics, /metrics/probes and /metrics/slis. What other packages count is in actors/internal/metrics.
package agentmetrics
