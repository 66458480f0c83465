// Package cadvisor holds the handlers of cAdvisor's port (4194 on old kubelets): pages with charts of what the node, its pods and
// containers use, cAdvisor's families of metrics, and its REST API v1.3 and v2.1 as its Go clients read it.
//
// All of it is a view of the figures that the stats actor's room collects when somebody reads, by the same cache (Figures). What
// was read through this port lately is kept for a while (history), so that there is something to draw; nothing is collected for
// it. Its events are those that the statuses of pods tell of, as the board has them. What cAdvisor answers from samples that it
// collects all the time, or with what processes' command lines say, is answered with 501 and the reason.
package cadvisor
