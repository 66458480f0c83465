package registration

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/supervisortest"
)

// world is an actor with an API server and a machine that the test controls.
type world struct {
	*supervisortest.Kit
	t          *testing.T
	api        *fake.Clientset
	machine    Machine
	runtime    Runtime
	network    error
	images     images
	holding    string // the work of this name is not done
	machineErr error
	addresses  []netip.Addr
	addressErr error
	opts       Options
	state      *State
	life       *life

	feed Observation // what the watch says next
}

type images []*runtimeapi.Image

func (i images) ListImages(context.Context, *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error) {
	if i == nil {
		return nil, errors.New("no runtime")
	}
	return i, nil
}

var machine = Machine{CPUs: 4, Memory: 8 << 30, Disk: 100 << 30, HugePages: map[int64]int64{2 << 20: 64 << 20, 1 << 30: 0},
	MachineID: "m", SystemUUID: "s", BootID: "b", Kernel: "6.1", OSImage: "Debian"}

func wellRuntime() Runtime {
	return Runtime{Since: time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC), Ready: true, Name: "containerd", Version: "v2.4.2",
		NetworkReady: true}
}

func newWorld(t *testing.T, change func(*Options)) *world {
	w := &world{t: t, api: fake.NewClientset(), machine: machine, runtime: wellRuntime(), images: images{}, state: &State{},
		life: &life{}, addresses: addrs("192.0.2.7")}
	w.opts = Options{
		Client: w.api, State: w.state, Desired: desired(), Sizes: Sizes{MaxPods: 110, LocalStorage: true},
		Machine:   func(context.Context) (Machine, error) { return w.machine, w.machineErr },
		Addresses: func(context.Context) ([]netip.Addr, error) { return w.addresses, w.addressErr },
		Runtime:   func() Runtime { return w.runtime }, Network: func(context.Context) error { return w.network }, Images: w,
		UpdateFrequency: 10 * time.Second, ReportFrequency: 5 * time.Minute, LeaseDuration: 40 * time.Second,
		Random: func() float64 { return 0.5 },
		Watch:  NewWatch(w.api, "node", slog.New(slog.DiscardHandler)),
	}
	if change != nil {
		change(&w.opts)
	}
	return w
}

func (w *world) ListImages(ctx context.Context, f *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error) {
	return w.images.ListImages(ctx, f)
}

func desired() NodeConfig {
	return NodeConfig{Name: "node", Register: true, Labels: map[string]string{"rack": "7"}, AttachDetach: true,
		KubeletVersion: "v1.36.3+playlet-x", MaxImages: 50}
}

// start starts the actor, as a new one of the same process where there was one before.
func (w *world) start() {
	w.Kit = supervisortest.New(w.t, messages.Registration, &actor{opts: w.opts, life: w.life})
	w.work()
}

// work runs all work but the watch, which the test controls.
func (w *world) work() {
	for again := true; again; {
		again = false
		for i, one := range w.Work {
			if one.Name == "WatchNode" || one.Name == w.holding {
				continue
			}
			w.Work = append(w.Work[:i:i], w.Work[i+1:]...)
			w.RunOne(one)
			again = true
			break
		}
	}
}

// sees makes the watch report the API server's Node.
func (w *world) sees() {
	w.t.Helper()
	w.says(w.stored(), nil)
}

func (w *world) says(node *v1.Node, err error) {
	w.feed.Version, w.feed.Node, w.feed.Err = w.feed.Version+1, node, err
	if err == nil {
		w.feed.Heard++
	}
	w.Send(messages.Registration, watchResult{w.feed})
	w.work()
}

// stored is the Node at the API server; nil where there is none.
func (w *world) stored() *v1.Node {
	w.t.Helper()
	list, err := w.api.CoreV1().Nodes().List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	for i := range list.Items {
		if list.Items[i].Name == "node" {
			return &list.Items[i]
		}
	}
	return nil
}

// put creates or changes the Node as another client.
func (w *world) put(node *v1.Node) {
	w.t.Helper()
	if err := w.api.Tracker().Update(v1.SchemeGroupVersion.WithResource("nodes"), node, ""); err != nil {
		if err := w.api.Tracker().Add(node); err != nil {
			w.t.Fatal(err)
		}
	}
}

// passes lets time pass, with the work that comes due.
func (w *world) passes(d time.Duration) {
	for ; d > 0; d -= time.Second {
		w.Advance(min(d, time.Second))
		w.work()
	}
}

// writes are the requests about nodes that change something, since the last call: "create", "patch", "patch status".
func (w *world) writes() []string {
	out := []string{}
	for _, a := range w.api.Actions() {
		if a.GetResource().Resource != "nodes" || a.GetVerb() == "list" || a.GetVerb() == "get" {
			continue
		}
		text := a.GetVerb()
		if a.GetSubresource() != "" {
			text += " " + a.GetSubresource()
		}
		out = append(out, text)
	}
	w.api.ClearActions()
	return out
}

// newEvents returns the events recorded since the last call.
func (w *world) newEvents() (out []string) {
	w.t.Helper()
	for _, m := range w.Take() {
		if e, ok := m.Msg.(messages.RecordEvent); ok && m.To == messages.Events {
			if e.Object.Kind != "Node" || e.Object.UID != "node" {
				w.t.Errorf("about %+v", e.Object)
			}
			out = append(out, e.Type+" "+e.Reason)
		}
	}
	return out
}

func found() *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", UID: types.UID("uid-1"),
		Labels: map[string]string{"mine": "yes"}}}
}
