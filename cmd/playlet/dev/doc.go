// Package dev runs a node to try things out, for `playlet dev`: a containerd of its own, a registry with two small
// images, the agent, and a sample pod. It leaves the machine as it was.
//
// Three processes share the work:
//
//   - outer stays on the machine. It finds the programs, writes down all that is going to be made (Record), makes what
//     belongs to the machine, starts init, and undoes everything when init has ended, in whatever way.
//   - init is process 1 of new PID, mount and cgroup namespaces. It sets them up, starts node, and reaps. The kernel
//     ends it with outer, and everything in the namespaces with it.
//   - node does what is to be seen: registry, containerd, agent, pods.
//
// So mounts, network namespaces and processes cannot outlive a run, not even by kill -9 of all three. What can (the
// bridge, rules of iptables, cgroups, net.ipv4.ip_forward, files) is in the record, which the next run finds. The
// network namespace is the machine's, so that pods can be reached from it.
//
// Below it: programs finds containerd, runc and plugins, or downloads them; network makes and undoes what belongs to the
// machine's network. What the end-to-end tests use, too: namespaces (mounts, cgroups, process 1), daemon (programs that go
// on in the background) and containerd (its configuration and folder).
package dev
