package userns

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"pgregory.net/rapid"

	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
)

// recorded has the form of a kubelet 1.36.3, by its source.
const recorded = `{"uidMappings":[{"hostId":3217031168,"containerId":0,"length":65536}],` +
	`"gidMappings":[{"hostId":3217031168,"containerId":0,"length":65536}]}`

func TestRecord_IsTheKubelets(t *testing.T) {
	got, err := decode([]byte(recorded))
	if err != nil || got != (Range{3217031168, 65536}) {
		t.Errorf("got %v, %v", got, err)
	}
	if data, err := got.encode(); err != nil || string(data) != recorded {
		t.Errorf("got %s, %v, want %s", data, err, recorded)
	}
}

func TestDecode_RefusesRangesOfTheHost(t *testing.T) {
	edit := func(old, replacement string) string { return strings.ReplaceAll(recorded, old, replacement) }
	for _, text := range []string{"", "{}", "null", edit("3217031168", "0"), edit("3217031168", "1000"), edit(`"length":65536`, `"length":1`),
		edit(`"length":65536`, `"length":0`), edit("3217031168", "4294901761"), edit(`"containerId":0`, `"containerId":1`),
		strings.Replace(recorded, "3217031168", "65536", 1), edit(`[{`, `[{"hostId":65536,"containerId":0,"length":65536},{`)} {
		if got, err := decode([]byte(text)); err == nil {
			t.Errorf("%s is the range %v", text, got)
		}
	}
}

// Ranges that are chosen lie within the bounds and overlap none in use, and none is left out.
func TestChoose(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		length := uint32(rapid.IntRange(1, 3).Draw(t, "units")) * Unit
		count := rapid.IntRange(1, 6).Draw(t, "count")
		within := Range{length * uint32(rapid.IntRange(1, 4).Draw(t, "first")), length * uint32(count)}
		var used []Range
		for range rapid.IntRange(0, 4).Draw(t, "used") {
			used = append(used, Range{Unit * uint32(rapid.IntRange(1, 30).Draw(t, "at")), Unit * uint32(rapid.IntRange(1, 5).Draw(t, "long"))})
		}
		free := 0
		for i := range count {
			slot := Range{within.First + uint32(i)*length, length}
			if !slices.ContainsFunc(used, slot.overlaps) {
				free++
			}
		}
		for got := range count + 1 {
			r, ok := choose(within, length, used)
			if ok != (got < free) {
				t.Fatalf("range %d of %d free ones: %v, %t", got+1, free, r, ok)
			}
			if !ok {
				return
			}
			if r.First < within.First || r.end() > within.end() || slices.ContainsFunc(used, r.overlaps) || r.check() != nil {
				t.Fatalf("got %v within %v beside %v", r, within, used)
			}
			used = append(used, r)
		}
	})
}

// No range has the ID 2^32-1, which the kernel refuses to map (kubernetes/kubernetes#141345).
func TestChoose_LeavesOutTheLastID(t *testing.T) {
	all := rest(Unit)
	if all.Pods(Unit) != 65534 || all.end() != 1<<32-Unit {
		t.Errorf("the bounds without a user kubelet are %v", all)
	}
	used := []Range{{Unit, 4294836224 - Unit}}
	r, ok := choose(all, Unit, used)
	if !ok || r != (Range{4294836224, Unit}) {
		t.Errorf("got %v, %t", r, ok)
	}
	if r, ok := choose(all, Unit, append(used, r)); ok {
		t.Errorf("got %v", r)
	}
}

func TestBounds(t *testing.T) {
	line := func(first, number int) string { return fmt.Sprintf("0: kubelet %d %d\n", first, number) }
	for _, c := range []struct{ users, groups, words string }{
		{line(65536, 7208960), "", ""},
		{line(65536, 7208960), line(65536, 65536), "/etc/subuid and /etc/subgid have different ranges"},
		{line(0, 65536), "", "must begin at a multiple of 65536, and not at 0"},
		{line(100000, 65536), "", "begins at 100000"},
		{line(65536, 65537), "", "has 65537 IDs: it must have a multiple of 65536"},
		{line(65536, 0), "", "has 0 IDs"},
		{line(4294901760, 131072), "", "ends above ID 4294967295"},
		{line(4294901760, 65536), "", "has 0 IDs"},
		{line(65536, 65536) + "1: kubelet 131072 65536\n", "", "no single range"},
		{"", "", "no single range"},
		{"0: kubelet x 65536\n", "", "invalid syntax"},
	} {
		if c.groups == "" {
			c.groups = c.users
		}
		got, err := boundsOf(c.users, c.groups, Unit)
		if c.words == "" && (err != nil || got != (Range{65536, 7208960})) || c.words != "" && (err == nil || !strings.Contains(err.Error(), c.words)) {
			t.Errorf("%q: %v, %v, want %q", c.users, got, err, c.words)
		}
	}
	// The kernel does not map the last ID, so that the last pod of such a range is left out.
	if got, err := boundsOf(line(65536, 4294901760), line(65536, 4294901760), Unit); err != nil || got != (Range{65536, 4294836224}) {
		t.Errorf("a range up to the last ID: got %v, %v", got, err)
	}
}

// node is a root folder and a runtime with the sandboxes of some pods.
type node struct {
	mu        sync.Mutex
	root      string
	sandboxes map[string]Range // by UID; zero: one with the host's users
	statuses  int
	err       error
}

func newNode(t *testing.T) *node { return &node{root: t.TempDir(), sandboxes: map[string]Range{}} }

func (n *node) ListPodSandbox(context.Context, *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []*runtimeapi.PodSandbox
	for _, uid := range slices.Sorted(maps.Keys(n.sandboxes)) {
		out = append(out, &runtimeapi.PodSandbox{Id: "of-" + uid, Labels: map[string]string{cri.LabelPodUID: uid}})
	}
	return out, n.err
}

func (n *node) PodSandboxStatus(_ context.Context, id string, _ bool) (*runtimeapi.PodSandboxStatusResponse, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.statuses++
	users := &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_NODE}
	if of := n.sandboxes[strings.TrimPrefix(id, "of-")]; of != (Range{}) {
		users = of.Namespace()
	}
	return &runtimeapi.PodSandboxStatusResponse{Status: &runtimeapi.PodSandboxStatus{Linux: &runtimeapi.LinuxPodSandboxStatus{
		Namespaces: &runtimeapi.Namespace{Options: &runtimeapi.NamespaceOption{UsernsOptions: users}}}}}, n.err
}

// ranges returns the ranges of an agent that has just started.
func (n *node) ranges(count uint32) *Ranges {
	return New(Options{RootDir: n.root, Sandboxes: n, IDsPerPod: Unit, Log: slog.New(slog.DiscardHandler),
		Bounds: func(context.Context) (Range, error) { return Range{Unit, count * Unit}, nil }})
}

func (n *node) folder(uid string) string { return filepath.Join(n.root, "pods", uid) }

func (n *node) record(t *testing.T, uid, text string) {
	t.Helper()
	if err := os.MkdirAll(n.folder(uid), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(n.folder(uid), RecordFile), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func take(t *testing.T, r *Ranges, uid string) Range {
	t.Helper()
	got, err := r.Take(t.Context(), uid)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestRanges_AreKeptUntilNothingIsLeft(t *testing.T) {
	n := newNode(t)
	a, b := take(t, n.ranges(2), "a"), take(t, n.ranges(2), "b")
	n.sandboxes["a"], n.sandboxes["b"], n.sandboxes["plain"] = a, b, Range{}
	if a.overlaps(b) || take(t, n.ranges(2), "a") != a {
		t.Errorf("the ranges are %v and %v, and after a restart %v", a, b, take(t, n.ranges(2), "a"))
	}
	full := func(left string) {
		t.Helper()
		_, err := n.ranges(2).Take(t.Context(), "c")
		if err == nil || err.Error() != "no free user namespace range: 2 of 2 in use" || messages.CauseOf(err).Code != messages.CauseNoUserRange {
			t.Errorf("with %s of the first pod left got %v", left, err)
		}
	}
	full("all")
	if err := os.RemoveAll(n.folder("a")); err != nil {
		t.Fatal(err)
	}
	full("the sandbox")
	delete(n.sandboxes, "a")
	if c := take(t, n.ranges(2), "c"); c != a {
		t.Errorf("the next pod got %v, want the free %v", c, a)
	}
}

func TestRanges_ReadKubeletRecords(t *testing.T) {
	n := newNode(t)
	n.record(t, "kubelets", recorded)
	n.record(t, "broken", "{")
	if got := take(t, n.ranges(4), "kubelets"); got.First != 3217031168 {
		t.Errorf("got %v", got)
	}
	n.sandboxes["broken"] = Range{2 * Unit, Unit}
	r := n.ranges(4)
	for range 2 {
		if got := take(t, r, "broken"); got != n.sandboxes["broken"] {
			t.Errorf("a pod whose record is lost got %v, want its sandbox's range", got)
		}
	}
	if got, err := r.Of(t.Context(), "broken"); err != nil || got != n.sandboxes["broken"] {
		t.Errorf("got %v, %v", got, err)
	}
	for uid, text := range map[string]string{"x": recorded, "y": strings.ReplaceAll(recorded, "3217031168", "65536")} {
		n.record(t, uid, text)
	}
	if got, err := r.Take(t.Context(), "x"); err == nil || !strings.Contains(err.Error(), "pod with UID kubelets") {
		t.Errorf("a range of two pods is given: %v, %v", got, err)
	}
	if got := take(t, r, "new"); slices.ContainsFunc([]Range{{Unit, Unit}, {2 * Unit, Unit}}, got.overlaps) {
		t.Errorf("a new pod got %v, which is in use", got)
	}
	if _, err := r.Take(t.Context(), "../x"); err == nil {
		t.Error("a UID leads out of the pods' folder")
	}
}

func TestRanges_WithheldWhileRuntimeIsUnknown(t *testing.T) {
	n := newNode(t)
	n.err = errors.New("the runtime is away")
	if got, err := n.ranges(2).Take(t.Context(), "a"); !errors.Is(err, n.err) {
		t.Errorf("got %v, %v", got, err)
	}
	n.err = nil
	r := n.ranges(2)
	n.sandboxes["plain"] = Range{}
	take(t, r, "a")
	take(t, r, "b")
	if n.statuses != 1 {
		t.Errorf("the sandbox was read %d times", n.statuses)
	}
}

// Pods come at the same time, and agents one after another.
func TestRanges_NeverShared(t *testing.T) {
	n := newNode(t)
	r := n.ranges(40)
	var group sync.WaitGroup
	for i := range 40 {
		group.Go(func() {
			if _, err := r.Take(t.Context(), fmt.Sprint("p", i)); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	seen := map[Range]bool{}
	for i := range 40 {
		seen[take(t, n.ranges(40), fmt.Sprint("p", i))] = true
	}
	if len(seen) != 40 {
		t.Errorf("40 pods have %d ranges", len(seen))
	}
}
