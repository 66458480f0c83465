package cpus

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/utils/cpuset"

	"github.com/playlet-dev/playlet/actors/internal/cpus/checkpoint"
	"github.com/playlet-dev/playlet/actors/internal/metrics"
	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
)

// four has four CPUs on two cores: 0 and 2, 1 and 3.
var four = shape{1, 1, 1, 2, 2}

// config is of the static policy on four, with one reserved CPU.
func config(dir string, change func(*Config)) Config {
	c := Config{RootDir: dir, Policy: PolicyStatic, Count: 1, Enabled: func(string) bool { return false },
		Topology: func() (Topology, error) { return four.topology(), nil }, Log: slog.New(slog.DiscardHandler)}
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

func (m *Manager) pins(t *testing.T, want ...string) {
	t.Helper()
	for i := 0; i < len(want); i += 3 {
		if got := m.Pin(want[i], want[i+1]).CPUs; got != want[i+2] {
			t.Errorf("container %s of pod %s has CPUs %q, want %q", want[i+1], want[i], got, want[i+2])
		}
	}
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
	m := open(t, Config{RootDir: dir, Policy: PolicyNone, Log: slog.New(slog.DiscardHandler)})
	if err := m.allocatePod(t, newPod("u", "app 1")); err != nil || m.Static() || m.Pin("u", "app0") != (translate.Pin{}) ||
		len(m.Allocatable()) > 0 {
		t.Errorf("error %v, pin %+v", err, m.Pin("u", "app0"))
	}
	if got, want := stored(t, dir), `{"policyName":"none","defaultCpuSet":"","checksum":1353318690}`; got != want { // as by a kubelet
		t.Errorf("got file %s, want %s", got, want)
	}
}

// A file that cannot be read is set aside, since no container depends on it.
func TestManager_PolicyNone_Damage(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, File)
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	open(t, Config{RootDir: dir, Policy: PolicyNone, Log: slog.New(slog.DiscardHandler)})
	aside, err := os.ReadFile(path + ".corrupt")
	if got := stored(t, dir); err != nil || string(aside) != "{" || !strings.Contains(got, `"policyName":"none"`) {
		t.Errorf("got file %s, set aside %q, %v", got, aside, err)
	}
}

// Assignments are on disk when Allocate returns, and the next Manager has them. Released CPUs return to the shared pool.
func TestManager_KeepsAssignments(t *testing.T) {
	dir := t.TempDir()
	m := open(t, config(dir, nil))
	m.pins(t, "u", "app0", "0-3")
	if err := m.allocatePod(t, newPod("u", "app 2")); err != nil {
		t.Fatal(err)
	}
	text := stored(t, dir)
	if data, err := checkpoint.Decode([]byte(text)); err != nil || data.Shared.String() != "0,2" ||
		data.Given["u"]["app0"].String() != "1,3" {
		t.Errorf("got file %s, %v", text, err)
	}
	if pin := m.Pin("u", "app0"); pin != (translate.Pin{CPUs: "1,3", Unlimited: true}) || m.Pin("v", "app0").Unlimited {
		t.Errorf("got %+v", pin)
	}
	m = open(t, config(dir, func(c *Config) { c.Limited = true }))
	m.pins(t, "u", "app0", "1,3", "v", "app0", "0,2")
	if m.Pin("u", "app0").Unlimited || len(m.Exclusive("u", "app0")) != 2 || len(m.Allocatable()) != 3 {
		t.Errorf("got %+v, exclusive %v, allocatable %v", m.Pin("u", "app0"), m.Exclusive("u", "app0"), m.Allocatable())
	}
	if err := m.allocatePod(t, newPod("u", "app 2")); err != nil {
		t.Errorf("asked again: %v", err)
	}
	m.Retain(map[string]string{"u": "ns/u"})
	m.pins(t, "u", "app0", "1,3")
	if err := m.allocatePod(t, newPod("u", "app 4")); err == nil {
		t.Error("a changed pod gets more CPUs than there are")
	}
	m.pins(t, "u", "app0", "0-3")
	if err := m.allocatePod(t, newPod("u", "app 2")); err != nil {
		t.Error(err)
	}
	m.Release("other")
	m.pins(t, "u", "app0", "1,3")
	m.Release("u")
	m.pins(t, "u", "app0", "0-3")
	m.Close()
	if text := stored(t, dir); !strings.Contains(text, `"defaultCpuSet":"0-3"`) || strings.Contains(text, "entries") {
		t.Errorf("after the release the file is %s", text)
	}
}

// The refusal of a pod names the free CPUs and their holders, in the fields of its cause.
func TestManager_Refusals(t *testing.T) {
	m := open(t, config(t.TempDir(), nil))
	if err := m.allocatePod(t, newPod("u", "app 1")); err != nil {
		t.Fatal(err)
	}
	m.Retain(map[string]string{"u": "ns/web", "v": "ns/db"})
	err := m.allocatePod(t, newPod("v", "app 1", "app 2"))
	refusal, _ := errors.AsType[Refusal](err)
	cause := messages.CauseOf(err)
	if want := "container app1 requests 2, and 1 of 3 are free; ns/web has 1, other containers of the pod have 1"; err == nil || refusal.Reason != "" ||
		cause.Code != messages.CauseNoCPUs || cause.Detail != want ||
		err.Error() != "not enough cpus available to satisfy request: requested=2, available=1" {
		t.Errorf("got %v, %+v, want %s", err, cause, want)
	}
	m.pins(t, "v", "app0", "0-1,3")
	whole := func(c *Config) { c.Options = map[string]string{"full-pcpus-only": "true"} }
	err = open(t, config(t.TempDir(), whole)).allocatePod(t, newPod("v", "app 1"))
	refusal, _ = errors.AsType[Refusal](err)
	if cause := messages.CauseOf(err); refusal.Reason != "SMTAlignmentError" || cause.Code != messages.CauseNoCores ||
		!strings.HasPrefix(cause.Detail, "a core has 2 CPUs; container app0 requests 1") {
		t.Errorf("got %v, %+v", err, cause)
	}
}

// With strict-cpu-reservation all others may be exclusive. Containers without any then run on the reserved ones, and the next
// Manager can read the file.
func TestManager_EmptySharedPool(t *testing.T) {
	dir := t.TempDir()
	strict := func(c *Config) {
		c.Options, c.Reserved = map[string]string{"strict-cpu-reservation": "true"}, cpuset.New(0)
	}
	m := open(t, config(dir, strict))
	m.pins(t, "v", "app0", "1-3")
	if err := m.allocatePod(t, newPod("u", "app 3")); err != nil {
		t.Fatal(err)
	}
	m.pins(t, "u", "app0", "1-3", "v", "app0", "0")
	open(t, config(dir, strict)).pins(t, "u", "app0", "1-3", "v", "app0", "0")
}

func TestOpen_Refuses(t *testing.T) {
	dir := t.TempDir()
	if err := open(t, config(dir, nil)).allocatePod(t, newPod("u", "app 1")); err != nil {
		t.Fatal(err)
	}
	damaged := t.TempDir()
	if err := os.WriteFile(filepath.Join(damaged, File), []byte(strings.Replace(stored(t, dir), "0-1,3", "0-1", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, c := range map[string]Config{
		`configured policy "none" differs from state checkpoint policy "static": drain this node and remove the file`: config(dir,
			func(c *Config) { c.Policy = PolicyNone }),
		`not all reserved cpus: "2" are present`: config(dir, func(c *Config) { c.Reserved = cpuset.New(2) }),
		`current set of available CPUs "0-7" doesn't match with CPUs in state "0-3"`: config(dir, func(c *Config) {
			c.Topology = func() (Topology, error) { return shape{1, 1, 1, 4, 2}.topology(), nil }
		}),
		"checkpoint is corrupted": config(damaged, nil),
		"has no options": config(t.TempDir(), func(c *Config) {
			c.Policy, c.Options = PolicyNone, map[string]string{"full-pcpus-only": "true"}
		}),
		`unknown policy: "best"`:  config(t.TempDir(), func(c *Config) { c.Policy = "best" }),
		"to be greater than zero": config(t.TempDir(), func(c *Config) { c.Count = 0 }),
		"no topology": config(t.TempDir(), func(c *Config) {
			c.Topology = func() (Topology, error) { return nil, errors.New("no topology") }
		}),
	} {
		if _, err := Open(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// While no container runs, a checkpoint of other CPUs is set aside and replaced. One of another policy is refused.
func TestOpen_OtherCPUsWithoutContainers(t *testing.T) {
	dir := t.TempDir()
	if err := open(t, config(dir, nil)).allocatePod(t, newPod("u", "app 1")); err != nil {
		t.Fatal(err)
	}
	idle := true
	other := func(c *Config) {
		c.Topology = func() (Topology, error) { return shape{1, 1, 1, 4, 2}.topology(), nil }
		c.Idle = func() bool { return idle }
	}
	for _, c := range []Config{config(dir, func(c *Config) { other(c); c.Policy = PolicyNone }),
		config(dir, func(c *Config) { other(c); idle = false })} {
		if _, err := Open(c); err == nil {
			t.Error("opened with another policy, or while containers run")
		}
	}
	idle = true
	if refused, replaced := Check(config(dir, other)); refused != nil || replaced == nil {
		t.Errorf("in advance: %v, %v, want the replacement", refused, replaced)
	}
	open(t, config(dir, other)).pins(t, "v", "app0", "0-7")
	if aside, err := filepath.Glob(filepath.Join(dir, File+"*")); err != nil || len(aside) != 2 {
		t.Errorf("got files %v, %v, want the new checkpoint and the old one", aside, err)
	}
	open(t, config(dir, func(c *Config) { other(c); idle = false })).pins(t, "v", "app0", "0-7")
}

// A pod has no CPUs if they cannot be written down.
func TestManager_FullDisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "gone")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	m := open(t, config(dir, nil))
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	err := m.allocatePod(t, newPod("u", "app 1"))
	if err == nil || !strings.Contains(err.Error(), "failed to write checkpoint file") {
		t.Errorf("error %v", err)
	}
	m.pins(t, "u", "app0", "0-3")
}

func count(t *testing.T, c prometheus.Metric) float64 {
	t.Helper()
	var out dto.Metric
	if err := c.Write(&out); err != nil {
		t.Fatal(err)
	}
	return out.GetCounter().GetValue()
}

// Requests are counted by container, up to the one that fails.
func TestManager_CountsRequests(t *testing.T) {
	m := open(t, config(t.TempDir(), nil))
	requests, errs := metrics.PinningRequests.WithLabelValues(), metrics.PinningErrors.WithLabelValues()
	aligned := metrics.Aligned.WithLabelValues(metrics.ByContainer, metrics.UncoreCache)
	before := [3]float64{count(t, requests), count(t, errs), count(t, aligned)}
	if err := m.allocatePod(t, newPod("u", "app 1", "app 1")); err != nil {
		t.Fatal(err)
	}
	if err := m.allocatePod(t, newPod("v", "app 1", "app 1", "app 1")); err == nil {
		t.Fatal("four containers have three CPUs")
	}
	after := [3]float64{count(t, requests) - before[0], count(t, errs) - before[1], count(t, aligned) - before[2]}
	if want := [3]float64{4, 1, 3}; after != want {
		t.Errorf("counted %v, want %v", after, want)
	}
}
