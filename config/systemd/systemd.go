// Package systemd holds the files with which the agent is installed as a service.
package systemd

import (
	_ "embed"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
)

// UnitName is the service's name.
const UnitName = "playlet.service"

// ConfigPath is where the service's KubeletConfiguration lies, unless it was installed with another.
const ConfigPath = "/etc/playlet/config.yaml"

// KubeletUnit is the name of the kubelet's service. kubeadm starts and stops it.
const KubeletUnit = "kubelet.service"

// LogindPath is the file by which the agent raises logind's limit of delays where the kubelet's own does not count.
const LogindPath = "/etc/systemd/logind.conf.d/zz-playlet.conf"

// TakeoverPath is the drop-in with which the kubelet's service runs this program.
const TakeoverPath = "/etc/systemd/system/kubelet.service.d/90-playlet.conf"

//go:embed playlet.service
var unitText string

//go:embed kubelet.service
var kubeletUnitText string

// serviceText has the settings that all services of the agent share.
//
//go:embed service.conf
var serviceText string

//go:embed config.yaml
var configuration string

// Unit is the service's unit, for this binary and this KubeletConfiguration, both absolute paths.
func Unit(binary, config string) string {
	return withService(strings.NewReplacer("@BINARY@", quote(binary), "@CONFIG@", quote(config)).Replace(unitText))
}

// ForKubeadm is the unit of the kubelet's service for a node without a kubelet, on which /usr/bin/kubelet is this program.
func ForKubeadm() string { return withService(kubeletUnitText) }

func withService(text string) string { return strings.ReplaceAll(text, "@SERVICE@\n", serviceText) }

// Takeover returns the drop-in that has the installed kubelet's service run this binary with the arguments of the kubelet, and
// these arguments. root is "/" but for tests. The error is fs.ErrNotExist if no such service is installed.
func Takeover(root, binary string) (dropIn string, args []string, err error) {
	u, err := load(root, KubeletUnit, TakeoverPath)
	if err != nil {
		return "", nil, err
	}
	if u.path == "" {
		return "", nil, fmt.Errorf("%s: %w", KubeletUnit, fs.ErrNotExist)
	}
	if u.ours(root) {
		return "", nil, fmt.Errorf("%s runs playlet already", u.path)
	}
	program, rest, _ := strings.Cut(strings.TrimLeft(u.start, "-@:+!|"), " ")
	if name := filepath.Base(program); name != "kubelet" {
		return "", nil, fmt.Errorf("%s starts %q, which is no kubelet", u.path, program)
	}
	return "# playlet install --replace-kubelet wrote this: Playlet runs with the arguments of the kubelet.\n" +
		"# playlet uninstall removes it, and the kubelet runs again.\n" +
		"[Unit]\nStartLimitIntervalSec=0\n\n[Service]\nExecStart=\n" +
		"ExecStart=" + strings.TrimSpace(quote(binary)+" "+strings.TrimSpace(rest)) + "\n" +
		serviceText, u.args(), nil
}

// Configuration is the KubeletConfiguration of a node with no cluster, closed to the outside. Hosts with cgroups of
// version 1, which the agent runs on only where it is configured to, need a line more.
func Configuration(cgroupV1 bool) string {
	if !cgroupV1 {
		return configuration
	}
	return configuration + "# This host has cgroup v1, which Kubernetes has deprecated.\nfailCgroupV1: false\n"
}

// quote writes a path as a word of a command line of systemd.service(5), where % begins a specifier and $ a variable.
func quote(path string) string {
	path = strings.NewReplacer("%", "%%", "$", "$$").Replace(path)
	if !strings.ContainsAny(path, " \t\"'\\;") {
		return path
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(path) + `"`
}
