// Package stats reports the node's figures: the usage of the machine, its cgroups, pods, containers and volumes. /stats/summary,
// /metrics/resource and /metrics/cadvisor are three views of one [Collector] with one cache. [Handler] also serves the agent's
// own metrics of package agentmetrics.
//
// Figures are only collected for a reader. There is no loop: a request reads figures that are too old, concurrent requests share
// one reading, and within its age a reading costs nothing (see part). Each kind of figures is read separately with its own
// timeout, so that a hanging runtime or file server only costs its own figures: the answer has their previous values.
// resource_scrape_error and container_scrape_error report missing figures; "playlet top" and the pages of cAdvisor's port name
// them.
//
// The sources of figures:
//
//   - The pods actor publishes the pods and containers on the board. The runtime is not asked for them.
//   - The CPU, memory, swap, I/O, processes, pressure and network of the node, of pods and of containers are read from cgroups
//     and /proc, in cAdvisor's model, with one reading for all views, so that they agree (package cgroupstats).
//   - The families of containers are a table equivalent to cAdvisor's collector (package cgroupmetrics).
//   - The CRI (ListContainerStats) reports writable layers and image file systems, and all figures of a container whose cgroup
//     is not visible here, as in a virtual machine. If its list does not fit into one message, pods are listed one by one.
//   - The actor walks volumes, logs and /etc/hosts, a few pods at a time and fairly by namespace (see walk). Pods that eviction
//     needs figures of come first. A walk has no deadline; a long walk takes turns with others (see turnQueue). Until it ends,
//     its figures are lower bounds and marked partial. Views for people show the previous figures where these are larger;
//     decisions do not use them. CSI drivers are asked beside walks, with a timeout of their own.
//
// Figures of the last walks and of CPU time are kept by the process and outlive the actor, whose restart loses nothing.
package stats
