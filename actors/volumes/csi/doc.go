// Package csi calls the node service of CSI drivers (Container Storage Interface 1.x): the registered drivers (drivers.go),
// their calls, each with a deadline and a limit per driver (driver.go), and the record that identifies a volume on the disk
// (record.go). Records have the kubelet's format, so that either agent finds the volumes of the other. The package has no
// knowledge of pods or the API server, and no actors.
package csi
