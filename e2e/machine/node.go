package machine

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/cmd/playlet/dev/devimages"
	"github.com/playlet-dev/playlet/config/systemd"
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

	service string // the unit of the agent, or of the kubelet in its place
}

// StartNode boots a machine and installs the agent's package, as Main made it. The agent does not run yet. The files below
// FilesPath are the packages, and the given ones by their names.
func StartNode(tb testing.TB, o Options, files ...string) *Node {
	tb.Helper()
	o.Files = Files()
	if len(files) > 0 {
		packages, err := filepath.Glob(filepath.Join(o.Files, "*"))
		if err != nil {
			tb.Fatal(err)
		}
		o.Files = filesWith(tb, append(packages, files...)...)
	}
	n := startNode(tb, o)
	n.Must("dpkg -i " + DebPath(Version))
	return n
}

func startNode(tb testing.TB, o Options) *Node {
	tb.Helper()
	n := &Node{Machine: Boot(tb, o), Registry: StartRegistry(tb), service: "playlet.service"}
	if err := n.Mirror(tb.Context(), "registry.test", n.Registry.Addr); err != nil {
		tb.Fatal(err)
	}
	return n
}

// filesWith returns a new folder with the files by their names.
func filesWith(tb testing.TB, files ...string) string {
	tb.Helper()
	dir := tb.TempDir()
	for _, from := range files {
		to := filepath.Join(dir, filepath.Base(from))
		if os.Link(from, to) == nil { // fails between file systems
			continue
		}
		data, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(to, data, 0o755)
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
	return dir
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

// StartKubeletNode boots a machine like StartNode, for Kubernetes' kubelet instead of the agent. The kubelet does not run yet. It
// reads the file of systemd.ConfigPath, which the test has to write.
func StartKubeletNode(tb testing.TB, o Options) *Node {
	tb.Helper()
	cluster, err := install.LocateCluster()
	if err != nil {
		tb.Skip("there is no kubelet:", err)
	}
	o.Files = filesWith(tb, cluster.Kubelet)
	n := startNode(tb, o)
	n.service = systemd.KubeletUnit
	unit := "[Service]\nExecStart=/usr/local/bin/kubelet --config=" + systemd.ConfigPath +
		"\nKillMode=process\n[Install]\nWantedBy=multi-user.target\n"
	if err := n.Write(tb.Context(), "/etc/systemd/system/"+n.service, unit, 0o644); err != nil {
		tb.Fatal(err)
	}
	n.Must("install -m 755 " + FilesPath + "/kubelet /usr/local/bin/")
	return n
}

// Configure adds lines to the package's KubeletConfiguration.
func (n *Node) Configure(lines string) {
	n.tb.Helper()
	before, err := n.Get(n.tb.Context(), systemd.ConfigPath)
	if err == nil {
		err = n.Write(n.tb.Context(), systemd.ConfigPath, before+lines+"\n", 0o600)
	}
	if err != nil {
		n.tb.Fatal(err)
	}
}

// Enable starts the agent's unit, at each boot from now on.
func (n *Node) Enable() {
	n.tb.Helper()
	n.Must("systemctl enable --now " + n.service)
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

// Tasks returns the containers that run, a line each with ID and PID, sorted. It waits for a containerd that is restarting.
func (n *Node) Tasks() string {
	n.tb.Helper()
	all := n.Await(startLimit, "ctr -n k8s.io tasks list", nil)
	var running []string
	for line := range strings.Lines(all) {
		if strings.Contains(line, "RUNNING") {
			running = append(running, strings.TrimSpace(line))
		}
	}
	slices.Sort(running)
	return strings.Join(running, "\n")
}
