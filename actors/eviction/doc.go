// Package eviction is the actor that measures what the node is short of, and tells registration, which reports it in the
// node's conditions. Nothing is reclaimed and no pod is evicted yet.
//
// Signals, thresholds and their hysteresis are the kubelet's. Of the signals, containerfs.* are not measured: their
// thresholds are those of nodefs or imagefs, as containers are on one of the two, and nothing would follow that does not follow
// from that one.
package eviction
