// Package prober is the actor that runs every probe of the node. All probes share one clock (a heap of due times and one
// timer) and bounded pools of workers. book.go decides: wishes, thresholds, what to tell; schedule.go decides when and
// which; each action of a probe is a file (exec.go, http.go, tcp.go, grpc.go); prober.go carries out.
package prober
