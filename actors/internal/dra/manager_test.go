package dra

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	healthapi "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"

	"github.com/playlet-dev/playlet/actors/internal/dra/dratest"
	"github.com/playlet-dev/playlet/messages"
)

// node is a Manager with its folder and API server.
type node struct {
	*Manager
	t      *testing.T
	dir    string
	client *fake.Clientset
	health chan string
}

func newNode(t *testing.T, claims ...*resourceapi.ResourceClaim) *node {
	dir, err := os.MkdirTemp("", "dra") // a short path, as a socket's is limited
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	n := &node{t: t, dir: dir, client: fake.NewClientset(), health: make(chan string, 100)}
	for _, c := range claims {
		n.add(c)
	}
	n.restart()
	t.Cleanup(func() { n.Close() })
	return n
}

// restart replaces the Manager by a new one that reads the checkpoint.
func (n *node) restart() {
	if n.Manager != nil {
		n.Close()
	}
	n.Manager = New(Options{Client: n.client, NodeName: "node-1", RootDir: n.dir, Extended: true, Health: true, Messages: true,
		Retry: func(int) time.Duration { return time.Millisecond }, Log: slog.New(slog.DiscardHandler)})
	n.Notify(func(uid string) { n.health <- uid }, func() {})
	n.wipeDelay = 0
}

func (n *node) add(c *resourceapi.ResourceClaim) {
	if err := n.client.Tracker().Add(c); err != nil {
		n.t.Fatal(err)
	}
}

// driver starts and registers a driver.
func (n *node) driver(name string, change ...func(*dratest.Driver)) *dratest.Driver {
	d := dratest.New(n.dir, name)
	for _, f := range change {
		f(d)
	}
	if err := d.Listen(); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(d.Stop)
	n.register(d)
	return d
}

func (n *node) register(d *dratest.Driver) {
	n.t.Helper()
	if err := n.Registry().Register(n.t.Context(), d.Socket, d.Name, d.Socket, d.Versions()); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) prepare(pod *v1.Pod) {
	n.t.Helper()
	if err := n.Prepare(n.t.Context(), pod); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) unprepare(uid string) {
	n.t.Helper()
	if err := n.Unprepare(n.t.Context(), uid); err != nil {
		n.t.Fatal(err)
	}
}

// waitLimit bounds each wait. It is reached only if something is stuck.
const waitLimit = 5 * time.Minute

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(waitLimit); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting for %s", what)
		}
	}
}

func equal(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

// Both versions of the API are called, the devices reach the container, and a shared claim is prepared once and unprepared after
// its last pod.
func TestPrepareAndUnprepare(t *testing.T) {
	n := newNode(t, aClaim("shared", []string{"d.org"}, []string{"u", "v"}), aClaim("old", []string{"beta.org"}, []string{"u"}))
	d := n.driver("d.org")
	old := n.driver("beta.org", func(d *dratest.Driver) { d.Beta = true })
	u, v := aPod("u", "shared", "old"), aPod("v", "shared")
	n.prepare(u)
	n.prepare(u)
	n.prepare(v)
	equal(t, "calls", d.Calls(), "prepare shared")
	equal(t, "calls of v1beta1", old.Calls(), "prepare old")
	equal(t, "holders", n.Holders(), "u", "v")
	got, err := n.Devices(t.Context(), u, &u.Spec.Containers[0])
	if err != nil || len(got) != 2 || got[0].GetName() != "d.org/test=shared" || got[1].GetName() != "beta.org/test=old" {
		t.Errorf("devices: got %v, %v", got, err)
	}
	if use := n.table.inUse(); use["<any>"] != 2 || use["d.org"] != 1 || use["beta.org"] != 1 {
		t.Errorf("in use: got %v", use)
	}
	n.unprepare("u")
	n.unprepare("u")
	equal(t, "prepared by d.org", d.Prepared(), "shared")
	equal(t, "prepared by beta.org", old.Prepared())
	n.unprepare("v")
	equal(t, "calls", d.Calls(), "prepare shared", "unprepare shared")
	equal(t, "holders", n.Holders())
}

// After a restart, a claim is prepared again for a new sandbox, but the devices of a running pod come from the checkpoint.
func TestRestart(t *testing.T) {
	n := newNode(t, aClaim("c", []string{"d.org"}, []string{"u"}))
	d := n.driver("d.org")
	pod := aPod("u", "c")
	n.prepare(pod)
	n.restart()
	if got, err := n.Devices(t.Context(), pod, &pod.Spec.Containers[0]); err != nil || len(got) != 1 {
		t.Errorf("devices: got %v, %v", got, err)
	}
	if err := n.Unprepare(t.Context(), "u"); err == nil || messages.CauseOf(err).Code != messages.CauseClaimDriverAbsent {
		t.Errorf("without the driver: got %v", err)
	}
	n.register(d)
	n.prepare(pod)
	n.unprepare("u")
	equal(t, "calls", d.Calls(), "prepare c", "prepare c", "unprepare c")
}

// A lost checkpoint is reported and kept aside, and the claims of a running pod are prepared again when its container starts.
func TestALostCheckpoint(t *testing.T) {
	n := newNode(t, aClaim("c", []string{"d.org"}, []string{"u", "v"}))
	pod := aPod("u", "c")
	if err := os.WriteFile(filepath.Join(n.dir, File), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	n.restart()
	if n.Damage() == "" {
		t.Error("no damage is reported")
	}
	d := n.driver("d.org")
	if got, err := n.Devices(t.Context(), pod, &pod.Spec.Containers[0]); err != nil || len(got) != 1 {
		t.Errorf("devices: got %v, %v", got, err)
	}
	n.unprepare("u") // and pod v runs
	equal(t, "prepared while another pod may use it", d.Prepared(), "c")
	n.unprepare("v")
	equal(t, "prepared after its last pod", d.Prepared())
	aside, err := filepath.Glob(filepath.Join(n.dir, File+".*"))
	if err != nil || len(aside) != 1 {
		t.Errorf("kept aside: %v, %v", aside, err)
	}
}

// The start of a container records its pod as a user of a claim that another pod has prepared.
func TestDevices_RecordThePod(t *testing.T) {
	n := newNode(t, aClaim("c", []string{"d.org"}, []string{"u", "v"}))
	n.driver("d.org")
	n.prepare(aPod("u", "c"))
	pod := aPod("v", "c")
	if got, err := n.Devices(t.Context(), pod, &pod.Spec.Containers[0]); err != nil || len(got) != 1 {
		t.Errorf("devices: got %v, %v", got, err)
	}
	equal(t, "holders", n.Holders(), "u", "v")
}

// Each failure names its claim or driver, nothing is recorded before all drivers are there, and a driver that succeeded is not
// called again.
func TestFailuresOfPreparing(t *testing.T) {
	n := newNode(t, aClaim("two", []string{"a.org", "b.org"}, []string{"u"}))
	pod := aPod("u", "two")
	fails := func(of *v1.Pod, want messages.Cause) {
		t.Helper()
		err := n.Prepare(t.Context(), of)
		if err == nil {
			t.Fatalf("no error, want %v", want)
		}
		if got := messages.CauseOf(err); got.Code != want.Code || got.Name != want.Name || got.Detail != want.Detail {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	fails(aPod("u", "absent"), messages.Cause{Code: messages.CauseObjectAbsent, Name: "ns/absent"})
	fails(aPod("v", "two"), messages.Cause{Code: messages.CauseClaimUnready, Name: "ns/two"})
	a := n.driver("a.org")
	fails(pod, messages.Cause{Code: messages.CauseClaimDriverAbsent, Name: "b.org", Detail: "ns/two"})
	equal(t, "holders", n.Holders())
	equal(t, "calls", a.Calls())
	b := n.driver("b.org")
	b.Fail(errors.New("no power"))
	fails(pod, messages.Cause{Code: messages.CauseClaimDriverFailed, Name: "b.org", Detail: "ns/two"})
	equal(t, "holders", n.Holders(), "u")
	b.Fail(nil)
	n.prepare(pod)
	equal(t, "calls of the first driver", a.Calls(), "prepare two")
	b.Fail(errors.New("no power"))
	if err := n.Unprepare(t.Context(), "u"); err == nil || !strings.Contains(err.Error(), "no power") {
		t.Errorf("got %v", err)
	}
	b.Fail(nil)
	n.unprepare("u")
	equal(t, "calls of the first driver", a.Calls(), "prepare two", "unprepare two")
	equal(t, "calls of the second driver", b.Calls(), "prepare two", "prepare two", "unprepare two", "unprepare two")
	n.client.PrependReactor("get", "resourceclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("no route")
	})
	fails(pod, messages.Cause{Code: messages.CauseObjectUnread, Name: "ns/two", Detail: "no route"})
}

// A driver that hangs holds only the pods of its claims, and the call ends with its context.
func TestADriverThatHangs(t *testing.T) {
	n := newNode(t, aClaim("slow", []string{"slow.org"}, []string{"u", "w"}), aClaim("fast", []string{"fast.org"}, []string{"v"}))
	slow, fast := n.driver("slow.org"), n.driver("fast.org")
	release := slow.Hang()
	t.Cleanup(release)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- n.Prepare(ctx, aPod("u", "slow")) }()
	eventually(t, "a call of the driver", func() bool { return len(slow.Calls()) > 0 })
	n.prepare(aPod("v", "fast"))
	equal(t, "prepared", fast.Prepared(), "fast")
	waits, stop := context.WithCancel(t.Context())
	go func() { ended <- n.Prepare(waits, aPod("w", "slow")) }()
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("a second pod of the claim: got %v", err)
	}
	cancel()
	if err := <-ended; err == nil || messages.CauseOf(err).Name != "slow.org" {
		t.Errorf("got %v", err)
	}
	release()
	n.prepare(aPod("u", "slow"))
	n.unprepare("u")
	equal(t, "prepared", slow.Prepared())
}

func TestRegistration(t *testing.T) {
	n := newNode(t)
	for name, versions := range map[string][]string{"": {"v1.DRAPlugin"}, "none": nil, "old": {"v1alpha4.Node"}} {
		if err := n.Registry().Register(t.Context(), "/s", name, "/s", versions); err == nil {
			t.Errorf("%q with %v is registered", name, versions)
		}
	}
	if err := n.Registry().Register(t.Context(), "/s", "d", "s", []string{"v1.DRAPlugin"}); err == nil {
		t.Error("a relative endpoint is registered")
	}
}

// During a rolling update the connected plugin is called, whichever registered last, and the end of one of them deletes no
// slices.
func TestTwoPluginsOfADriver(t *testing.T) {
	n := newNode(t, aClaim("c", []string{"d.org"}, []string{"u"}))
	n.wipeDelay = time.Hour
	d := n.driver("d.org")
	awaitConnected(n, "d.org")
	absent := filepath.Join(n.dir, "absent.sock")
	if err := n.Registry().Register(t.Context(), absent, "d.org", absent, d.Versions()); err != nil {
		t.Fatal(err)
	}
	n.prepare(aPod("u", "c"))
	equal(t, "calls", d.Calls(), "prepare c")
	n.Registry().Deregister(absent, "d.org")
	n.locked(func() {
		if len(n.wipes) > 0 {
			t.Errorf("deletions are planned: %v", n.wipes)
		}
	})
}

func awaitConnected(n *node, driver string) {
	n.t.Helper()
	eventually(n.t, "a connection to "+driver, func() (connected bool) {
		n.locked(func() { connected = n.plugins.connected(driver) })
		return connected
	})
}

// deletions returns the field selectors of the deleted slices.
func deletions(n *node) (out []string) {
	for _, a := range n.client.Actions() {
		if d, ok := a.(clienttesting.DeleteCollectionAction); ok {
			out = append(out, d.GetListRestrictions().Fields.String())
		}
	}
	return out
}

func awaitDeletions(n *node, count int) []string {
	n.t.Helper()
	eventually(n.t, "deletions of slices", func() bool { return len(deletions(n)) >= count })
	return deletions(n)
}

// All slices of the node are deleted at the start, and again after a failure; a driver's slices are deleted after its end.
func TestSlicesAreDeleted(t *testing.T) {
	n := newNode(t)
	// A proxy's page may say that there are no ResourceSlices.
	failures := []error{errors.New("no route"), apierrors.NewNotFound(schema.GroupResource{Resource: "resourceslices"}, "")}
	n.client.PrependReactor("delete-collection", "resourceslices", func(clienttesting.Action) (bool, runtime.Object, error) {
		if len(failures) == 0 {
			return true, nil, nil
		}
		err := failures[0]
		failures = failures[1:]
		return true, nil, err
	})
	n.wipeRetry = 0
	n.Start()
	equal(t, "at the start", awaitDeletions(n, 3), "spec.nodeName=node-1", "spec.nodeName=node-1", "spec.nodeName=node-1")
	n.wipeDelay = time.Hour
	d := n.driver("d.org")
	awaitConnected(n, "d.org")
	var planned int
	n.locked(func() { planned = len(n.wipes) })
	if planned != 0 {
		t.Errorf("%d deletions are planned for a connected driver", planned)
	}
	n.wipeDelay = 0
	n.Registry().Deregister(d.Socket, "d.org")
	if got := awaitDeletions(n, 4); got[3] != "spec.driver=d.org,spec.nodeName=node-1" {
		t.Errorf("after the driver's end: %v", got)
	}
}

// A device has the health of its driver's last report, and an unknown one before. Each change is reported to its pods.
func TestHealth(t *testing.T) {
	n := newNode(t, aClaim("c", []string{"d.org"}, []string{"u"}))
	d := n.driver("d.org")
	pod := aPod("u", "c")
	n.prepare(pod)
	is := func(want v1.ResourceHealthStatus, message string) {
		t.Helper()
		got := n.Health(pod, &pod.Spec.Containers[0])
		if len(got) != 1 || got[0].Name != "claim:my-c" || len(got[0].Resources) != 1 ||
			got[0].Resources[0].ResourceID != "d.org/test=c" || got[0].Resources[0].Health != want {
			t.Errorf("got %+v, want %s", got, want)
			return
		}
		if m := got[0].Resources[0].Message; (m == nil) != (message == "") || m != nil && *m != message {
			t.Errorf("message: got %v, want %q", m, message)
		}
	}
	is(v1.ResourceHealthStatusUnknown, "")
	of := &healthapi.DeviceIdentifier{PoolName: "pool", DeviceName: "device"}
	d.Report(&healthapi.DeviceHealth{Device: of, Health: healthapi.HealthStatus_UNHEALTHY, Message: "too hot"})
	if uid := <-n.health; uid != "u" {
		t.Errorf("a change is reported to %s", uid)
	}
	is(v1.ResourceHealthStatusUnhealthy, "too hot")
	d.Report(&healthapi.DeviceHealth{Device: of, Health: healthapi.HealthStatus_HEALTHY})
	<-n.health
	is(v1.ResourceHealthStatusHealthy, "")
	n.Registry().Deregister(d.Socket, "d.org")
	<-n.health
	is(v1.ResourceHealthStatusUnknown, "")
}

// A report expires after the driver's own time, or the default.
func TestHealthExpires(t *testing.T) {
	r, now := reports{}, time.Now()
	id := deviceID{"p", "d"}
	of := &healthapi.DeviceIdentifier{PoolName: "p", DeviceName: "d"}
	for seconds, want := range map[int64]time.Duration{0: healthTimeout, -1: healthTimeout, 5: 5 * time.Second} {
		_, until := r.take(now, "d.org", []*healthapi.DeviceHealth{{Device: of, Health: healthapi.HealthStatus_HEALTHY, HealthCheckTimeoutSeconds: seconds}})
		if until != want {
			t.Errorf("%d s: expires after %s, want %s", seconds, until, want)
		}
		if s, _ := r.of(now.Add(want), "d.org", id); s != v1.ResourceHealthStatusHealthy {
			t.Errorf("%d s: %s in time", seconds, s)
		}
		if s, _ := r.of(now.Add(want+1), "d.org", id); s != v1.ResourceHealthStatusUnknown {
			t.Errorf("%d s: %s too late", seconds, s)
		}
		r.drop("d.org")
	}
}
