//go:build e2e

package machine_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/config/systemd"
	"github.com/playlet-dev/playlet/e2e/kubeimages"
	"github.com/playlet-dev/playlet/e2e/machine"
	"github.com/playlet-dev/playlet/e2e/parts/install"
)

// groupsConfig is the configuration of both agents; every setting has an effect on cgroups.
const groupsConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
staticPodPath: /etc/kubernetes/manifests
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
authentication: {anonymous: {enabled: false}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
readOnlyPort: 0
podPidsLimit: 1024
failSwapOn: false
`

// groupsVariants are further lines of groupsConfig, and a preparation of the machine.
var groupsVariants = []struct{ name, prepare, config string }{
	{"systemd", "", "kubeReserved: {cpu: 50m, memory: 200Mi}\nsystemReserved: {cpu: 50m, memory: 100Mi}\n" +
		"memorySwap: {swapBehavior: LimitedSwap}\n"},
	{"memory QoS", "", "featureGates: {MemoryQoS: true}\nsingleProcessOOMKill: true\n"},
	{"cgroupfs", "sed -i 's/SystemdCgroup = true/SystemdCgroup = false/' /etc/containerd/config.toml && systemctl restart containerd",
		"cgroupDriver: cgroupfs\n"},
}

// groupsPods are the specs of pods with each kind of resources. CONTAINER is the rest of a container with the shell image.
var groupsPods = map[string]string{
	"guaranteed":  "containers: [{name: a, resources: {limits: {cpu: 300m, memory: 64Mi}}, CONTAINER}]",
	"burstable":   "containers: [{name: a, resources: {requests: {cpu: 100m, memory: 32Mi}, limits: {memory: 64Mi}}, CONTAINER}]",
	"requests":    "containers: [{name: a, resources: {requests: {cpu: 5m, memory: 16Mi}}, CONTAINER}]",
	"besteffort":  "containers: [{name: a, CONTAINER}]",
	"whole":       "containers: [{name: a, resources: {limits: {cpu: 1, memory: 32Mi}}, CONTAINER}]",
	"several":     "initContainers: [{name: side, restartPolicy: Always, resources: {requests: {cpu: 20m, memory: 8Mi}}, CONTAINER}]\n  containers: [{name: a, resources: {limits: {cpu: 200m, memory: 32Mi}}, CONTAINER}, {name: b, resources: {requests: {cpu: 30m}}, CONTAINER}]",
	"podlevel":    "resources: {requests: {cpu: 60m, memory: 40Mi}, limits: {cpu: 600m, memory: 96Mi}}\n  containers: [{name: a, CONTAINER}, {name: b, resources: {limits: {memory: 32Mi}}, CONTAINER}]",
	"hugepages":   "containers: [{name: a, resources: {limits: {cpu: 150m, memory: 32Mi, hugepages-2Mi: 4Mi}}, CONTAINER}]",
	"hostnetwork": "hostNetwork: true\n  containers: [{name: a, CONTAINER}]",
}

// groupsContainers is the number of containers of groupsPods; each pod has a sandbox in addition.
const groupsContainers = 12

// groupFiles are patterns of the files that hold settings.
var groupFiles = []string{"cgroup.type", "cgroup.subtree_control", "cpu.*", "cpuset.cpus", "cpuset.mems", "cpuset.cpus.partition",
	"memory.min", "memory.low", "memory.high", "memory.max", "memory.swap.*", "memory.zswap.max", "memory.oom.group", "pids.max",
	"hugetlb.*.max", "io.weight", "io.bfq.weight", "io.max", "io.latency", "misc.max", "rdma.max"}

// groupFigures are files of the same names that count.
var groupFigures = regexp.MustCompile(`/(cpu\.(stat|pressure)|cpu\.stat\.local|memory\.swap\.(current|events|peak)):`)

// knownDifferences are files with other values than the kubelet's, each with the reason.
var knownDifferences = map[string]string{
	"/kubepods.slice/cpuset.cpus": inherited, "/kubepods/cpuset.cpus": inherited,
}

const inherited = "the kubelet names all CPUs; an empty file inherits them, and those that are added later"

// Every cgroup file of the node's pods has the value that the kubelet sets on the same machine.
func TestCgroupValues(t *testing.T) { machine.Each(t, testCgroupValues) }

func testCgroupValues(t *testing.T, release install.Release) {
	var table bytes.Buffer
	fmt.Fprintf(&table, "# Cgroup values on Debian's %s\n\nWritten by `task test-machine`; not to be edited. Playlet and the kubelet %s run the same pods on the "+
		"same machine.\n", release, kubeimages.Version)
	for _, v := range groupsVariants {
		ours := groupValues(t, machine.StartNode(t, machine.Options{Release: release}), v.prepare, groupsConfig+v.config)
		theirs := groupValues(t, machine.StartKubeletNode(t, machine.Options{Release: release}), v.prepare, groupsConfig+v.config)
		if len(ours) < 10*groupsContainers {
			t.Fatalf("only %d values were read", len(ours))
		}
		fmt.Fprintf(&table, "\n## %s\n\n```yaml\n%s```\n\n| group | file | Playlet | kubelet | reason |\n| --- | --- | --- | --- | --- |\n",
			v.name, v.config)
		all := maps.Clone(theirs)
		maps.Copy(all, ours)
		values := map[string][]string{} // of a kind of file in all groups
		for _, file := range slices.Sorted(maps.Keys(all)) {
			group, name := path.Split(file)
			if values[name] = append(values[name], ours[file]); ours[file] == theirs[file] {
				continue
			}
			fmt.Fprintf(&table, "| %s | %s | %s | %s | %s |\n", group, name, ours[file], theirs[file], knownDifferences[file])
			if knownDifferences[file] == "" {
				t.Errorf("%s: %s is %q, and %q with the kubelet", v.name, file, ours[file], theirs[file])
			}
		}
		fmt.Fprintf(&table, "\nOf %d values all others are the same. Those that differ between groups:\n\n| group | values |\n| --- | --- |\n", len(all))
		groups := map[string][]string{}
		for _, file := range slices.Sorted(maps.Keys(all)) {
			group, name := path.Split(file)
			if len(slices.Compact(slices.Clone(values[name]))) > 1 {
				groups[group] = append(groups[group], name+" "+cmp.Or(ours[file], "empty"))
			}
		}
		for _, group := range slices.Sorted(maps.Keys(groups)) {
			fmt.Fprintf(&table, "| %s | %s |\n", strings.Trim(group, "/"), strings.Join(groups[group], ", "))
		}
	}
	if dir := machine.DocsDir(); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, "cgroups-"+string(release)+".md"), table.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// groupValues starts the node's agent with a configuration and groupsPods, and returns the value of each file, by its path with
// names in place of the IDs of pods and containers.
func groupValues(t *testing.T, n *machine.Node, prepare, config string) map[string]string {
	t.Helper()
	defer func() {
		if err := n.Kill(); err != nil {
			t.Error(err)
		}
	}()
	n.Must("echo 8 >/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages && fallocate -l 256M /swap && chmod 600 /swap && " +
		"mkswap -q /swap && swapon /swap")
	if prepare != "" {
		n.Must(prepare)
	}
	if err := n.Write(t.Context(), systemd.ConfigPath, config, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, spec := range groupsPods {
		spec = strings.ReplaceAll(spec, "CONTAINER", fmt.Sprintf("image: %q, command: [sh, -c, %q]", machine.ShellImage, "exec sleep 1000000"))
		n.Manifest(name, "apiVersion: v1\nkind: Pod\nmetadata: {name: "+name+"}\nspec:\n  terminationGracePeriodSeconds: 1\n  "+spec+"\n")
	}
	n.Enable()
	want := groupsContainers + len(groupsPods)
	n.Await(commandLimit, "ctr -n k8s.io tasks list", func(out string) bool { return strings.Count(out, "RUNNING") == want })
	// A kubelet sets the values of the classes again each minute.
	time.Sleep(70 * time.Second)
	words := groupNames(t, n)
	find := "find /sys/fs/cgroup/kubepods* -type f \\( -name '" + strings.Join(groupFiles, "' -o -name '") + "' \\) -exec grep -H '' {} +"
	values := map[string]string{}
	for line := range strings.Lines(words.Replace(n.Must(find) + "\n" + n.Must("grep -H '' /sys/fs/cgroup/cgroup.subtree_control"))) {
		if groupFigures.MatchString(line) {
			continue
		}
		file, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		file = strings.TrimPrefix(file, "/sys/fs/cgroup")
		values[file] = strings.TrimSpace(values[file] + " " + value)
	}
	return values
}

// groupNames replaces the IDs of pods and containers in the paths of cgroups by names.
func groupNames(t *testing.T, n *machine.Node) *strings.Replacer {
	t.Helper()
	var pairs []string
	for id := range strings.FieldsSeq(n.Must("ctr -n k8s.io containers list -q")) {
		var info struct{ Labels map[string]string }
		if err := json.Unmarshal([]byte(n.Must("ctr -n k8s.io containers info "+id)), &info); err != nil {
			t.Fatal(err)
		}
		name, _, _ := strings.Cut(info.Labels["io.kubernetes.pod.name"], "-")
		uid := info.Labels["io.kubernetes.pod.uid"]
		container := info.Labels["io.kubernetes.container.name"]
		if container == "" {
			container = "sandbox"
		}
		pairs = append(pairs, id, container, uid, "-"+name, strings.ReplaceAll(uid, "-", "_"), "-"+name)
	}
	return strings.NewReplacer(pairs...)
}
