// Package eviction is the actor that measures memory, disks and process numbers, and reports pressure to registration and pods.
// Nothing is reclaimed and no pod is evicted yet.
//
// Signals, thresholds and their hysteresis are the kubelet's. containerfs.* is not measured: containers lie on nodefs or
// imagefs, whose thresholds then hold for it.
package eviction
