// Package systemd holds the files with which the agent is installed as a service.
package systemd

import (
	_ "embed"
	"strings"
)

// UnitName is the service's name.
const UnitName = "playlet.service"

// ConfigPath is where the service's KubeletConfiguration lies, unless it was installed with another.
const ConfigPath = "/etc/playlet/config.yaml"

//go:embed playlet.service
var unitText string

//go:embed config.yaml
var configuration string

// Unit is the service's unit, for this binary and this KubeletConfiguration, both absolute paths.
func Unit(binary, config string) string {
	return strings.NewReplacer("@BINARY@", quote(binary), "@CONFIG@", quote(config)).Replace(unitText)
}

// Configuration is the KubeletConfiguration of a node with no cluster, closed to the outside. Hosts with cgroups of
// version 1, which the agent runs on only where it is configured to, need a line more.
func Configuration(cgroupV1 bool) string {
	if !cgroupV1 {
		return configuration
	}
	return configuration + "# This host has cgroups of version 1, which Kubernetes is giving up.\nfailCgroupV1: false\n"
}

// quote writes a path as a word of a command line of systemd.service(5), where % begins a specifier and $ a variable.
func quote(path string) string {
	path = strings.NewReplacer("%", "%%", "$", "$$").Replace(path)
	if !strings.ContainsAny(path, " \t\"'\\;") {
		return path
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(path) + `"`
}
