// Package cadvisor holds the handlers of cAdvisor's port (4194 on old kubelets): pages with charts of the usage of the node, its
// pods and containers, cAdvisor's families of metrics, and its REST API v1.3 and v2.1 in the form of its Go clients.
//
// All of it is a view of the stats actor's figures, which are collected on request, through the same cache (Figures). Recently
// read figures are kept for a while for the charts (history); nothing is collected for that. The events come from the statuses of
// pods on the board. Requests that cAdvisor answers from continuous samples, or from command lines of processes, are answered
// with 501 and the reason.
package cadvisor
