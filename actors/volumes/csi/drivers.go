package csi

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	api "github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/playlet-dev/playlet/actors/internal/shares"
	"github.com/playlet-dev/playlet/messages"
)

// Drivers is the registry of CSI drivers on this node. It is a handler of the plugin watcher, and safe for concurrent use.
type Drivers struct {
	mu      sync.Mutex
	drivers map[string]*Driver
	gone    map[string]bool // registered earlier in this process, and no longer
	changed chan struct{}   // closed at the next change
	pending *pending
}

// NewDrivers returns an empty registry.
func NewDrivers() *Drivers {
	return &Drivers{drivers: map[string]*Driver{}, gone: map[string]bool{}, changed: make(chan struct{}),
		pending: &pending{calls: map[*Call]string{}}}
}

// NotRegisteredError reports a driver that is not registered on this node. The driver may register at any moment.
type NotRegisteredError struct{ Name string }

// Error implements error.
func (e NotRegisteredError) Error() string {
	return fmt.Sprintf("CSI driver %s is not registered on this node", e.Name)
}

// Cause implements messages.CauseError.
func (e NotRegisteredError) Cause() messages.Cause {
	return messages.Cause{Code: messages.CauseDriverAbsent, Name: e.Name}
}

// Get returns the driver with this name, or a NotRegisteredError.
func (d *Drivers) Get(name string) (*Driver, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if one := d.drivers[name]; one != nil {
		return one, nil
	}
	return nil, NotRegisteredError{name}
}

// Register adds the driver at an endpoint, the path of a socket. It asks the driver for its capabilities, and returns an error
// if the driver does not answer. A driver that registers again, e.g. because its process was replaced, is asked again; calls in
// progress end on their own. While the socket of a registration exists, no other socket can register the name with another
// endpoint.
func (d *Drivers) Register(ctx context.Context, socket, name, endpoint string, versions []string) error {
	if !slices.ContainsFunc(versions, isVersion1) {
		return fmt.Errorf("CSI driver %s speaks versions %s of CSI; version 1 is needed", name, strings.Join(versions, ", "))
	}
	d.mu.Lock()
	err := d.isFree(socket, name, endpoint)
	d.mu.Unlock()
	if err != nil {
		return err
	}
	one := &Driver{Name: name, Endpoint: endpoint, socket: socket, pending: d.pending,
		calls: shares.NewQueue("calls in progress", callsAtATime, callsWaiting)}
	if err = one.learn(ctx); err == nil {
		err = one.check()
	}
	if err != nil {
		return fmt.Errorf("CSI driver %s: %w", name, err)
	}
	d.change(func() {
		if err = d.isFree(socket, name, endpoint); err == nil {
			d.drivers[name] = one
			delete(d.gone, name)
		}
	})
	return err
}

func (d *Drivers) isFree(socket, name, endpoint string) error {
	held := d.drivers[name]
	if held == nil || held.socket == socket || held.Endpoint == endpoint {
		return nil
	}
	if _, err := os.Lstat(held.socket); err != nil {
		return nil //nolint:nilerr // the socket is gone, and so is its right to the name
	}
	return fmt.Errorf("CSI driver %s is registered by %s already", name, held.socket)
}

// check returns an error if the API server would reject the driver in a CSINode or in labels of the Node. The writes of other
// drivers would fail with it.
func (d *Driver) check() error {
	problems := validation.IsDNS1123Subdomain(strings.ToLower(d.Name))
	if len(d.Name) > 63 {
		problems = append(problems, "its name is longer than 63 characters")
	}
	if len(d.NodeID) > maxNodeID {
		problems = append(problems, fmt.Sprintf("its ID of this node is longer than %d characters", maxNodeID))
	}
	if len(d.Topology) > maxTopology {
		problems = append(problems, fmt.Sprintf("its topology has more than %d segments", maxTopology))
		d.Topology = nil
	}
	for key, value := range d.Topology {
		problems = append(problems, validation.IsQualifiedName(key)...)
		problems = append(problems, validation.IsValidLabelValue(value)...)
	}
	if len(problems) == 0 {
		return nil
	}
	return fmt.Errorf("its name, ID of this node or topology cannot be in the API: %s", strings.Join(problems, "; "))
}

// maxNodeID is the API's limit of a CSINode's node ID, in bytes. maxTopology limits a driver's labels of the Node, whose size has
// a limit.
const maxNodeID, maxTopology = 192, 64

// Deregister removes the driver that registered with the socket. A driver that has registered with another socket meanwhile
// stays.
func (d *Drivers) Deregister(socket, name string) {
	d.change(func() {
		if one := d.drivers[name]; one != nil && one.socket == socket {
			delete(d.drivers, name)
			d.gone[name] = true
		}
	})
}

func (d *Drivers) change(how func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	how()
	close(d.changed)
	d.changed = make(chan struct{})
}

// ReadLimit asks a driver again for its limit of volumes on this node, and records a change (KEP-4876). The other values of a
// registration stay. It returns within ten seconds.
func (d *Drivers) ReadLimit(ctx context.Context, name string) error {
	was, err := d.Get(name)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	info, err := call(ctx, was, "NodeGetInfo", false, api.NodeClient.NodeGetInfo, &api.NodeGetInfoRequest{})
	if err != nil {
		return err
	}
	now := *was
	if now.MaxVolumes = max(info.GetMaxVolumesPerNode(), 0); now.MaxVolumes == was.MaxVolumes {
		return nil
	}
	d.change(func() {
		if d.drivers[name] == was { // otherwise it was asked when it registered again
			d.drivers[name] = &now
		}
	})
	return nil
}

// Nudge wakes all waits for a change of drivers.
func (d *Drivers) Nudge() { d.change(func() {}) }

// All returns the drivers by name, the names of drivers that were registered earlier in this process and no longer are, and a
// channel that is closed when either changes.
func (d *Drivers) All() (drivers []*Driver, gone []string, changed <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	drivers = slices.SortedFunc(maps.Values(d.drivers), func(a, b *Driver) int { return cmp.Compare(a.Name, b.Name) })
	return drivers, slices.Sorted(maps.Keys(d.gone)), d.changed
}

func isVersion1(v string) bool {
	major, _, _ := strings.Cut(strings.TrimPrefix(v, "v"), ".")
	n, err := strconv.Atoi(major)
	return err == nil && n == 1
}
