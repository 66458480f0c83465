package numamemory

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	cadvisor "github.com/google/cadvisor/lib/model"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/playlet-dev/playlet/actors/internal/numamemory/checkpoint"
	"github.com/playlet-dev/playlet/actors/internal/topology"
	"github.com/playlet-dev/playlet/messages"
)

// config is of the static policy on two nodes; 1 GiB of each is reserved.
func config(dir string, change func(*Config)) Config {
	c := Config{RootDir: dir, Policy: PolicyStatic, Withheld: resource.MustParse("2Gi"), Log: slog.New(slog.DiscardHandler),
		Reserved: []kubeletconfig.MemoryReservation{reserve(0, "memory", "1Gi"), reserve(1, "memory", "1Gi")},
		Nodes:    func() ([]cadvisor.Node, error) { return nodes(2), nil }}
	if change != nil {
		change(&c)
	}
	return c
}

func open(t *testing.T, c Config) *Manager {
	t.Helper()
	m, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

// admit allocates to all containers of a pod, like the resources actor.
func (m *Manager) admit(t *testing.T, pod *v1.Pod) error {
	m.Fit(pod)
	for _, c := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
		if err := m.Allocate(t.Context(), pod, &c, topology.Result{}); err != nil {
			m.Release(string(pod.UID))
			return err
		}
	}
	return m.Commit()
}

func stored(t *testing.T, dir string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, File))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestManager_PolicyNone(t *testing.T) {
	dir := t.TempDir()
	m := open(t, config(dir, func(c *Config) { c.Policy = PolicyNone }))
	pod := newPod("u", "app 1Gi")
	if err := m.admit(t, pod); err != nil || m.Static() || m.Lacks(pod) || m.Nodes("u", "app") != "" || len(m.Allocatable()) > 0 ||
		m.Hints(pod, nil) != nil {
		t.Errorf("error %v, nodes %q, allocatable %v", err, m.Nodes("u", "app"), m.Allocatable())
	}
	if got, want := stored(t, dir), `{"policyName":"None","machineState":{},"checksum":4236770233}`; got != want { // as by a kubelet
		t.Errorf("got file %s, want %s", got, want)
	}
}

// A file of the policy None with allocations, which no kubelet writes, is left alone.
func TestManager_PolicyNoneIgnoresAllocations(t *testing.T) {
	dir := t.TempDir()
	text, err := checkpoint.Encode(checkpoint.Data{Policy: PolicyNone, Entries: map[string]map[string][]checkpoint.Block{
		"u": {"c": {{NUMAAffinity: []int{0}, Type: v1.ResourceMemory, Size: 1}}}}})
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, File), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	m := open(t, config(dir, func(c *Config) { c.Policy = PolicyNone }))
	m.Release("u")
	if err := m.Commit(); err != nil || stored(t, dir) != string(text) {
		t.Errorf("got %v, and the file %s, want %s", err, stored(t, dir), text)
	}
}

// Allocations are on disk after Commit, and the next Manager has them. A changed pod loses them.
func TestManager_KeepsAllocations(t *testing.T) {
	dir := t.TempDir()
	m := open(t, config(dir, nil))
	empty := stored(t, dir)
	pod := newPod("u", "init:i 9Gi", "app 9Gi 4Mi")
	if !m.Lacks(pod) {
		t.Error("the pod has memory before its admission")
	}
	if err := m.admit(t, pod); err != nil {
		t.Fatal(err)
	}
	m.Close()
	m = open(t, config(dir, nil))
	if m.Lacks(pod) || m.Nodes("u", "app") != "0,1" || m.Nodes("u", "i") != "0,1" {
		t.Errorf("the next manager has %q and %q", m.Nodes("u", "app"), m.Nodes("u", "i"))
	}
	if of := m.Of("u", "app"); len(of) != 2 || of[1].GetMemoryType() != "memory" || of[1].GetSize() != 9*gi ||
		len(of[1].GetTopology().GetNodes()) != 2 {
		t.Errorf("got memory %v", of)
	}
	if all := m.Allocatable(); len(all) != 4 || all[1].GetSize() != 8*gi || all[3].GetTopology().GetNodes()[0].GetID() != 1 {
		t.Errorf("got allocatable %v", all)
	}
	m.Retain(map[string]string{"u": "ns/u"})
	m.Release("other")
	text := stored(t, dir)
	if err := m.admit(t, pod); err != nil || stored(t, dir) != text {
		t.Errorf("allocated again: %v, file %s", err, stored(t, dir))
	}
	if err := m.admit(t, newPod("u", "app 2Gi")); err != nil || m.Nodes("u", "app") != "0" {
		t.Errorf("after a change: %v, nodes %q", err, m.Nodes("u", "app"))
	}
	m.Release("u")
	m.Close()
	if got := stored(t, dir); got != empty {
		t.Errorf("after the release the file is %s, want %s", got, empty)
	}
}

// A refusal has the kubelet's text for Kubernetes' tests, and its cause names the memory of each node.
func TestManager_Refuses(t *testing.T) {
	m := open(t, config(t.TempDir(), nil))
	if err := m.admit(t, newPod("u", "app 7Gi")); err != nil {
		t.Fatal(err)
	}
	err := m.admit(t, newPod("v", "app 17Gi"))
	cause := messages.CauseOf(err)
	if want := "container app requests 17Gi of memory; NUMA node 0 has 1Gi of 8Gi free; NUMA node 1 has 8Gi of 8Gi free"; err == nil ||
		!strings.HasPrefix(err.Error(), "[memorymanager] ") || cause.Code != messages.CauseNoMemory || cause.Detail != want {
		t.Errorf("got %v, %+v, want %s", err, cause, want)
	}
	if m.Nodes("v", "app") != "" {
		t.Errorf("a refused pod has memory of node %s", m.Nodes("v", "app"))
	}
}

func TestManager_FullDisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "gone")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	m := open(t, config(dir, nil))
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := m.admit(t, newPod("u", "app 1Gi")); err == nil || !strings.Contains(err.Error(), "failed to write checkpoint file") {
		t.Errorf("error %v", err)
	}
}

// A NUMA node may have a little more or less memory after a boot (kubernetes/kubernetes#131253). While no container runs, the
// checkpoint is replaced.
func TestOpen_OtherMemoryWithoutContainers(t *testing.T) {
	dir := t.TempDir()
	if err := open(t, config(dir, nil)).admit(t, newPod("u", "app 9Gi")); err != nil {
		t.Fatal(err)
	}
	with := func(idle bool) Config {
		return config(dir, func(c *Config) {
			c.Nodes = func() ([]cadvisor.Node, error) {
				out := nodes(2)
				out[0].Memory -= 4096
				return out, nil
			}
			c.Idle = func() bool { return idle }
		})
	}
	if _, err := Open(with(false)); err == nil {
		t.Error("opened while containers run")
	}
	if refused, replaced := Check(with(true)); refused != nil || replaced == nil {
		t.Errorf("in advance: %v, %v, want the replacement", refused, replaced)
	}
	m := open(t, with(true))
	if err := m.admit(t, newPod("v", "app 9Gi")); err != nil {
		t.Errorf("the memory of the earlier containers is not free: %v", err)
	}
}

func TestOpen_Refuses(t *testing.T) {
	dir := t.TempDir()
	m := open(t, config(dir, nil))
	if err := m.admit(t, newPod("u", "app 9Gi")); err != nil {
		t.Fatal(err)
	}
	text := stored(t, dir)
	with := func(old, next string) string {
		dir := t.TempDir()
		if !strings.Contains(text, old) {
			t.Fatalf("no %s in %s", old, text)
		}
		// A checksum of 0 is accepted.
		sum := text[strings.Index(text, `"checksum"`):]
		text := strings.Replace(strings.Replace(text, sum, `"checksum":0}`, 1), old, next, 1)
		if err := os.WriteFile(filepath.Join(dir, File), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	for want, c := range map[string]Config{
		`configured policy "None" differs from state checkpoint policy "Static": drain this node and remove the file`: config(dir,
			func(c *Config) { c.Policy = PolicyNone }),
		"the memory of NUMA node 0 or its reserved part has changed": config(dir, func(c *Config) {
			c.Reserved = []kubeletconfig.MemoryReservation{reserve(1, "memory", "2Gi")}
		}),
		"the file lacks NUMA node 2": config(dir, func(c *Config) {
			c.Nodes = func() ([]cadvisor.Node, error) { return nodes(3), nil }
		}),
		"this machine has none there":             config(with(`"numaAffinity":[0,1]`, `"numaAffinity":[0,7]`), nil),
		"the free memory of NUMA node 0 does not": config(with(`"size":9663676416`, `"size":9663676415`), nil),
		"the allocations on NUMA node 0 are 3 of the nodes [0 1], and should be 1": config(
			with(`"numberOfAssignments":1`, `"numberOfAssignments":3`), nil),
		`unknown policy: "best"`:  config(t.TempDir(), func(c *Config) { c.Policy = "best" }),
		"reservedMemory: the sum": config(t.TempDir(), func(c *Config) { c.Reserved = nil }),
	} {
		_, err := Open(c)
		refused, _ := Check(c)
		if err == nil || refused == nil || !strings.Contains(err.Error(), want) || refused.Error() != err.Error() {
			t.Errorf("error %v, want %q; in advance %v", err, want, refused)
		}
	}
	// The memory of a set of nodes may be distributed otherwise.
	moved := with(`"reserved":8589934592,"free":0`, `"reserved":1073741824,"free":7516192768`)
	path := filepath.Join(moved, File)
	half, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	other := strings.LastIndex(string(half), `"reserved":1073741824,"free":7516192768`)
	if err := os.WriteFile(path, []byte(string(half)[:other]+strings.Replace(string(half)[other:],
		`"reserved":1073741824,"free":7516192768`, `"reserved":8589934592,"free":0`, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	open(t, config(moved, nil))
}
