package locks

import (
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/procfs"

	"github.com/playlet-dev/playlet/config"
)

// EmbeddedKubelet is a process of any name that contains a kubelet: k3s, RKE2, k0s and MicroK8s have one.
type EmbeddedKubelet struct {
	PID    int
	Name   string
	Shared string // the runtime or root folder that it shares with the agent
	Unit   string // its system service; empty if unknown
}

// String describes the process.
func (k *EmbeddedKubelet) String() string {
	return fmt.Sprintf("the process %s (PID %d) contains a kubelet with the same %s", k.Name, k.PID, k.Shared)
}

// Remedy returns the ways out.
func (k *EmbeddedKubelet) Remedy() string {
	if k.Unit == "" {
		return "stop it, or give this agent its own"
	}
	return "stop it (systemctl disable --now " + k.Unit + "), or give this agent its own"
}

// kubeletSockets are the sockets on which every kubelet listens in its root folder.
var kubeletSockets = []string{"/device-plugins/kubelet.sock", "/pod-resources/kubelet.sock"}

// FindEmbedded returns a process in this mount namespace that contains a kubelet with the runtime or the root folder of node; nil
// for none. It is recognized by its sockets: it listens on a kubelet's sockets in node's root folder, or in another one and is
// connected to the runtime. The processes named in except are not considered. On a kernel without sock_diag nothing is found.
func FindEmbedded(node *config.Node, proc string, except ...int) *EmbeddedKubelet {
	sockets, err := unixSockets()
	if err != nil {
		return nil
	}
	roots, clients := map[string]string{}, map[string]bool{} // by the target of a descriptor
	of := func(inode uint32) string { return fmt.Sprintf("socket:[%d]", inode) }
	for _, s := range sockets {
		for _, suffix := range kubeletSockets {
			if root, ok := strings.CutSuffix(s.name, suffix); ok && s.listens {
				roots[of(s.inode)] = root
			}
		}
		if s.peer != 0 && samePath(s.name, socketOf(node)) {
			clients[of(s.peer)] = true
		}
	}
	files, err := procfs.NewFS(proc)
	if err != nil || len(roots) == 0 {
		return nil
	}
	all, _ := files.AllProcs() // those that can be read
	for _, p := range all {
		if slices.Contains(except, p.PID) || !sameMounts(proc, p.PID) {
			continue
		}
		if shared := sharedBySockets(node, p, roots, clients); shared != "" {
			name, _ := p.Comm()
			return &EmbeddedKubelet{PID: p.PID, Name: name, Shared: shared, Unit: unitOf(p)}
		}
	}
	return nil
}

// sharedBySockets returns the runtime or root folder of node that the kubelet in a process uses as well; empty if there is none.
func sharedBySockets(node *config.Node, p procfs.Proc, roots map[string]string, clients map[string]bool) (shared string) {
	kubelet := false
	open, _ := p.FileDescriptorTargets() // a process that has ended has none
	for _, file := range open {
		root, listens := roots[file]
		kubelet = kubelet || listens
		switch {
		case listens && samePath(root, node.RootDir):
			return "--root-dir " + node.RootDir
		case clients[file]:
			shared = "runtime " + node.Kubelet.ContainerRuntimeEndpoint
		}
	}
	if !kubelet {
		return ""
	}
	return shared
}

// unitOf returns the system service of a process, or "".
func unitOf(p procfs.Proc) string {
	groups, _ := p.Cgroups() // unreadable: unknown
	for _, g := range groups {
		rest, system := strings.CutPrefix(g.Path, "/system.slice/")
		if unit, _, _ := strings.Cut(rest, "/"); system && strings.HasSuffix(unit, ".service") {
			return unit
		}
	}
	return ""
}
