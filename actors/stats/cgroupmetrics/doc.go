// Package cgroupmetrics renders the families of /metrics/cadvisor about cgroups: a table equivalent to cAdvisor's collector, by
// name, labels and value (families.go), and the [Gatherer] that fills it. A test compares both with the library.
package cgroupmetrics
