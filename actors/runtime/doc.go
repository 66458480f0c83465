// Package runtime is the actor "runtime": it tells each pod what the CRI says of it, and pods what the CRI holds.
//
// It has two phases. While connecting it asks Version and Status again and again, at least once a second; while
// connected it reads. What to read it learns in three ways: a pod asks (ReadPod), an event of the CRI hints at one pod,
// or the audit, which lists everything, finds a pod that differs from what was told of it last. Where the runtime has
// events the audit is slow and only repairs what they missed; where it has none, the audit runs every second.
// Whatever the way, a pod is read by one reading at a time, and what cannot have changed is not asked for again.
//
// It also collects what is dead: containers and sandboxes beyond the configured limits, and log folders of pods that
// are gone. What no kubelet made is never touched.
package runtime
