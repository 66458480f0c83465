// Package machine runs virtual machines for tests: Debian 12 or 13 with systemd as PID 1, cgroup v2, Debian's cloud kernel,
// containerd and runc. QEMU emulates the processor, so that a machine needs no KVM and boots in about a minute.
//
// Each machine writes to an overlay of its release's image, which e2e/parts/install makes, and which is never changed. Commands
// run over ssh. The guest reaches the loopback interface of this process's network namespace as HostAddress; machines of one
// Network reach each other at their Address. This process reaches the ports of Options.Ports there, too.
//
//	m := machine.Boot(t, machine.Options{Release: install.Bookworm})
//	out := m.Must("systemctl is-system-running --wait")
package machine
