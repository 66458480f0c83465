// Package cgroupmetrics makes the families of /metrics/cadvisor that tell of cgroups: a table of what cAdvisor's collector tells,
// by name, labels and value (families.go), and the [Gatherer] that fills it. A test compares both with the library.
package cgroupmetrics
