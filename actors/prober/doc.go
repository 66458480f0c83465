// Package prober is the actor that runs every probe of the node. All probes share one clock (a heap of due times and one
// timer) and bounded pools of workers. state.go decides: thresholds, what to report; schedule.go decides when and
// which; each action of a probe is a file (exec.go, http.go, tcp.go, grpc.go); prober.go carries out.
//
// Commands and network probes have a pool of workers each. Half of a pool is for everybody; of the other half a pod has an
// eighth of the pool at most, so that probes which hang hold up few others. The time that a probe waits for its worker
// does not count against the application. The end of a container or of its pod cancels a probe that runs.
package prober
