// Package csi calls the node service of CSI drivers (Container Storage Interface 1.x): which drivers are registered here
// (drivers.go), their calls, each with a deadline and a bound for each driver (driver.go), and the file that says of a volume
// whose it is (record.go), which is the kubelet's, so that either agent finds what the other left. It knows no pods and no API
// server, and has no actors.
package csi
