package machine

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/cmd/playlet/dev/devimages"
	"github.com/playlet-dev/playlet/e2e/parts/install"
)

// ShellImage has a shell and usual commands; Node's containerd pulls it from Node.Registry.
const ShellImage = "registry.test/shell:1"

// manifests is the folder of the manifests of a node without a cluster.
const manifests = "/etc/kubernetes/manifests"

// startLimit bounds the start of a pod and of the agent. Only a hang reaches it: a busy machine emulates slowly.
const startLimit = 20 * time.Minute

// Node is a machine on which the agent's Debian package is installed. Its containerd has the images of Registry.
type Node struct {
	*Machine
	// Registry is the registry registry.test of the guest.
	Registry *devimages.Registry
}

// StartNode boots a machine and installs the agent's package, as Main made it. The agent does not run yet.
func StartNode(tb testing.TB, o Options) *Node {
	tb.Helper()
	o.Files = Files()
	m := Boot(tb, o)
	n := &Node{Machine: m, Registry: StartRegistry(tb)}
	if err := m.Mirror(tb.Context(), "registry.test", n.Registry.Addr); err != nil {
		tb.Fatal(err)
	}
	m.Must("dpkg -i " + DebPath(Version))
	return n
}

// StartRegistry starts a registry of this process with the images pause, hello and shell. It ends with the test.
func StartRegistry(tb testing.TB) *devimages.Registry {
	tb.Helper()
	registry, err := devimages.StartRegistry(context.WithoutCancel(tb.Context()))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := registry.Close(); err != nil {
			tb.Error(err)
		}
	})
	path, err := install.LocateBusyBox()
	if err != nil {
		tb.Fatal(err)
	}
	busybox, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	applets := []string{"sh", "cat", "dd", "echo", "ls", "sleep", "stat", "tail", "touch", "true", "wget"}
	image, err := devimages.HelloWithShell(busybox, applets)
	if err != nil {
		tb.Fatal(err)
	}
	if err := registry.Push("shell:1", image); err != nil {
		tb.Fatal(err)
	}
	return registry
}

// Configure adds lines to the package's KubeletConfiguration.
func (n *Node) Configure(lines string) {
	n.tb.Helper()
	before, err := n.Get(n.tb.Context(), "/etc/playlet/config.yaml")
	if err == nil {
		err = n.Write(n.tb.Context(), "/etc/playlet/config.yaml", before+lines+"\n", 0o600)
	}
	if err != nil {
		n.tb.Fatal(err)
	}
}

// Enable starts the agent's unit, at each boot from now on.
func (n *Node) Enable() {
	n.tb.Helper()
	n.Must("systemctl enable --now playlet.service")
}

// Pod writes the manifest of a pod with one container, which runs a script of the shell. Spec and container are further lines
// of the pod's spec and of its container, without indentation.
func (n *Node) Pod(name, script, spec, container string) {
	n.tb.Helper()
	indent := func(lines, by string) string {
		return strings.ReplaceAll(strings.TrimRight("\n"+lines, "\n"), "\n", "\n"+by)
	}
	n.Manifest(name, fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:%s
  containers:
  - name: main
    image: %s
    command: [sh, -c, %q]%s
`, name, indent(spec, "  "), ShellImage, script, indent(container, "    ")))
}

// Manifest writes a manifest of the name.
func (n *Node) Manifest(name, text string) {
	n.tb.Helper()
	if err := n.Write(n.tb.Context(), filepath.Join(manifests, name+".yaml"), text, 0o644); err != nil {
		n.tb.Fatal(err)
	}
}

// AwaitPods waits until the agent reports each pod as ready, and returns the last table.
func (n *Node) AwaitPods(names ...string) string {
	n.tb.Helper()
	return n.Await(startLimit, "playlet pods", func(table string) bool {
		for _, name := range names {
			if !strings.Contains(strings.Join(strings.Fields(table), " ")+" ", " "+name+"-"+n.Name+" 1/1 Running ") {
				return false
			}
		}
		return true
	})
}

// Tasks returns the containers that run, a line each with ID and PID, sorted.
func (n *Node) Tasks() string {
	n.tb.Helper()
	return n.Must("ctr -n k8s.io tasks list | grep RUNNING | sort")
}
