// Package dev runs a node to try things out, for `playlet dev`: a containerd of its own, a registry with two small images, the
// agent, and a sample pod. It restores the machine afterwards.
//
// Three processes share the work:
//
//   - outer stays on the machine. It finds the programs, records everything that the run is going to create (Record), creates
//     the machine's part of it, starts init, and undoes everything when init has ended in any way.
//   - init is process 1 of new PID, mount and cgroup namespaces. It sets them up, starts node, and reaps. The kernel
//     ends it with outer, and everything in the namespaces with it.
//   - node runs the visible parts: registry, containerd, agent, pods.
//
// So mounts, network namespaces and processes cannot outlive a run, not even after kill -9 of all three. The rest (the bridge,
// rules of iptables, cgroups, net.ipv4.ip_forward, files) is in the record, which the next run finds. The network namespace is
// the machine's, so that pods can be reached from it.
//
// Sub-packages: programs finds containerd, runc and plugins, or downloads them; network creates and undoes changes to the
// machine's network. Three more are shared with the end-to-end tests: namespaces (mounts, cgroups, process 1), daemon
// (background programs) and containerd (its configuration and folder).
package dev
