// Package sim is a simulated container runtime: CRI v1 (RuntimeService and ImageService) behind a real gRPC unix socket, for
// tests of the agent at a scale and with faults that no real runtime offers.
//
// Its visible behaviour follows containerd 2.x, or 1.6 with Options.Old: names are reserved by pod, attempt and container; a
// container starts once; stopping waits for a grace period and sends the stop signal once; removal is idempotent; a call
// cancelled half-way leaves the same state as in containerd (a cancelled start leaves an exited container with code 128, a
// cancelled create leaves nothing). Containers behave according to a Script and a Clock, survive Down, and end in a Reboot. Exec,
// Attach and PortForward stream over SPDY, according to Script.Stream; ports echo their input.
//
// A test reads the Journal (every call, in order), the Snapshot (every sandbox and container) and Violations (acts that no
// careful agent commits, such as starting a container twice). It waits with WaitFor and WaitCall, which wake on changes and never
// poll. It injects failures with Inject, Down, Reboot and the like.
//
// All methods of Runtime are safe for concurrent use unless their comment excludes it.
package sim
