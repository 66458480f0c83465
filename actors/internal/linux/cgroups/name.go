// Package cgroups implements the kubelet's layout of cgroups. Pure functions compute the names and values of the groups of the
// node, of the QoS classes and of pods. Tree applies them on cgroup v1 and v2, through cgroupfs or systemd.
package cgroups

import (
	"path"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// Name is a group as the elements of its path below the root: {"kubepods", "burstable", "pod<uid>"}. The root is empty.
type Name []string

// ParseName parses a path in the format of cgroupRoot. "" and "/" are the root.
func ParseName(text string) Name {
	text = strings.Trim(path.Clean("/"+text), "/")
	if text == "" {
		return nil
	}
	return strings.Split(text, "/")
}

// parseGroup parses the name of a group that the agent does not own, in the spelling of the driver: a path or a slice.
func parseGroup(text string, systemd bool) Name {
	name := ParseName(text)
	if !systemd || len(name) == 0 {
		return name
	}
	name = strings.Split(strings.TrimSuffix(name[len(name)-1], slice), "-")
	for i := range name {
		name[i] = strings.ReplaceAll(name[i], "_", "-")
	}
	return name
}

// Child returns the child group with this name.
func (n Name) Child(element string) Name {
	return append(n[:len(n):len(n)], element)
}

// Cgroupfs returns the path for the cgroupfs driver: "/kubepods/burstable/pod<uid>".
func (n Name) Cgroupfs() string { return "/" + strings.Join(n, "/") }

// Systemd returns the path for the systemd driver:
// "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<uid>.slice". A dash in an element becomes an underscore,
// because systemd.slice(5) treats dashes as separators.
func (n Name) Systemd() string {
	out, prefix := "", ""
	for _, element := range n {
		prefix += escape(element)
		out += "/" + prefix + slice
		prefix += "-"
	}
	if out == "" {
		return "/"
	}
	return out
}

const (
	slice     = ".slice"
	kubepods  = "kubepods"
	podPrefix = "pod"
)

func escape(element string) string { return strings.ReplaceAll(element, "-", "_") }

// Path returns the path in the spelling of the driver.
func (n Name) Path(systemd bool) string {
	if systemd {
		return n.Systemd()
	}
	return n.Cgroupfs()
}

// base returns the last element of Path.
func (n Name) base(systemd bool) string { return path.Base(n.Path(systemd)) }

// Classes are the child groups of kubepods by QoS class. Guaranteed pods are directly in kubepods.
var Classes = map[v1.PodQOSClass]string{
	v1.PodQOSGuaranteed: "",
	v1.PodQOSBurstable:  "burstable",
	v1.PodQOSBestEffort: "besteffort",
}

// ClassName returns the group that contains the pods of a QoS class, below cgroupRoot.
func ClassName(root Name, class v1.PodQOSClass) Name {
	name := root.Child(kubepods)
	if element := Classes[class]; element != "" {
		name = name.Child(element)
	}
	return name
}

// PodName returns the group of a pod.
func PodName(root Name, class v1.PodQOSClass, uid string) Name {
	return ClassName(root, class).Child(podPrefix + uid)
}

// podIn parses the UID from the literal name of a group in a class's group, and reports whether the group is a pod's. With
// systemd, dashes of the UID are underscores.
func podIn(class Name, literal string, systemd bool) (string, bool) {
	if !systemd {
		return strings.CutPrefix(literal, podPrefix)
	}
	prefix := strings.TrimSuffix(class.base(true), slice) + "-" + podPrefix
	inner, isSlice := strings.CutSuffix(literal, slice)
	uid, isPod := strings.CutPrefix(inner, prefix)
	return uid, isSlice && isPod
}
