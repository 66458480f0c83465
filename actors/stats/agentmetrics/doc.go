// Package agentmetrics counts the agent's operations, under the names and labels of the kubelet's families: calls of the runtime,
// runs of probes, requests to the node's API, and start times of pods. It also reports the state of the board. [Metrics] serves
// /metrics, /metrics/probes and /metrics/slis. Counters of other packages are in actors/internal/metrics.
package agentmetrics
