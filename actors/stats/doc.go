// Package stats gives the node's figures: what the machine, its cgroups, pods, containers and volumes use. /stats/summary,
// /metrics/resource and /metrics/cadvisor are three views of one [Collector] with one cache. [Handler] serves beside them what
// the agent itself did, which package agentmetrics counts.
//
// Nothing is collected that nobody reads. There is no loop: a request reads what is older than it may be, requests side by
// side share one reading, and within its age a reading costs nothing (see part). Each kind of figures is read apart from the
// others and within a time of its own, so that a runtime or a file server that hangs costs the answer its figures and nothing
// else: the answer has what was read last. That something is lacking is said by resource_scrape_error and container_scrape_error;
// "playlet top" and the pages of cAdvisor's port say what.
//
// Where figures come from:
//
//   - Which pods and containers there are is what the pods actor publishes on the board. The runtime is not asked for it.
//   - The CPU, memory, swap, I/O, processes, pressure and network of the node, of pods and of containers are read from cgroups
//     and /proc, in cAdvisor's model, with one reading for all views, so that they agree (package cgroupstats).
//   - The families of containers are a table of what cAdvisor's collector tells (package cgroupmetrics).
//   - The CRI (ListContainerStats) tells writable layers and image file systems, and all figures of a container whose cgroup is
//     not to be seen here, as in a virtual machine. Where its list does not fit into one message, pods are listed one by one.
//   - The actor walks volumes, logs and /etc/hosts, a few pods at a time and fairly by namespace (see walk). Pods that eviction
//     needs figures of come first. A walk has no deadline; a long walk takes turns with others (see turns). Until it ends, its
//     figures are lower bounds and marked partial. Views for people show the previous figures where these are larger;
//     decisions do not use them. CSI drivers are asked beside walks, with a timeout of their own.
//
// Figures of the last walks and of CPU time are kept by the process and outlive the actor, whose restart loses nothing.
package stats
