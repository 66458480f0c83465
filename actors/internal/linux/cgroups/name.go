// Package cgroups is the kubelet's layout of cgroups: names and values of the groups of the node, of the QoS classes
// and of pods as pure functions, and the carrying out of these on cgroup v1 and v2, through cgroupfs or systemd.
package cgroups

import (
	"path"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// Name is a group by the elements of its path below the root: {"kubepods", "burstable", "pod<uid>"}. The root is empty.
type Name []string

// ParseName reads a path as cgroupRoot has it. "" and "/" are the root.
func ParseName(text string) Name {
	text = strings.Trim(path.Clean("/"+text), "/")
	if text == "" {
		return nil
	}
	return strings.Split(text, "/")
}

// parseGroup reads the name of a group that others have made, as the driver spells it: a path, or a slice.
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

// Child is the group with this name within.
func (n Name) Child(element string) Name {
	return append(n[:len(n):len(n)], element)
}

// Cgroupfs is the path with the cgroupfs driver: "/kubepods/burstable/pod<uid>".
func (n Name) Cgroupfs() string { return "/" + strings.Join(n, "/") }

// Systemd is the path with the systemd driver: "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<uid>.slice".
// A dash in an element is written as an underscore: systemd.slice(5) takes dashes as separators.
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

// Path is the path as the driver spells it.
func (n Name) Path(systemd bool) string {
	if systemd {
		return n.Systemd()
	}
	return n.Cgroupfs()
}

// base is the last element of that.
func (n Name) base(systemd bool) string { return path.Base(n.Path(systemd)) }

// Classes are the groups of the QoS classes within kubepods, by the class. Guaranteed pods lie directly in kubepods.
var Classes = map[v1.PodQOSClass]string{
	v1.PodQOSGuaranteed: "",
	v1.PodQOSBurstable:  "burstable",
	v1.PodQOSBestEffort: "besteffort",
}

// ClassName is the group in which the pods of a QoS class lie, below cgroupRoot.
func ClassName(root Name, class v1.PodQOSClass) Name {
	name := root.Child(kubepods)
	if element := Classes[class]; element != "" {
		name = name.Child(element)
	}
	return name
}

// PodName is the group of a pod.
func PodName(root Name, class v1.PodQOSClass, uid string) Name {
	return ClassName(root, class).Child(podPrefix + uid)
}

// podIn reads the UID from the literal name of a group in a class's group; with systemd, dashes of the UID are underscores.
func podIn(class Name, literal string, systemd bool) (string, bool) {
	if !systemd {
		return strings.CutPrefix(literal, podPrefix)
	}
	prefix := strings.TrimSuffix(class.base(true), slice) + "-" + podPrefix
	inner, isSlice := strings.CutSuffix(literal, slice)
	uid, isPod := strings.CutPrefix(inner, prefix)
	return uid, isSlice && isPod
}
