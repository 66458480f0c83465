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

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/playlet-dev/playlet/actors/internal/shares"
	"github.com/playlet-dev/playlet/messages"
)

// Drivers are the drivers that are registered on this node. It is a handler of the plugin watcher. Safe for concurrent use.
type Drivers struct {
	mu      sync.Mutex
	drivers map[string]*Driver
	gone    map[string]bool // those that were registered in this process' life, and are no more
	changed chan struct{}   // closed at the next change
}

// NewDrivers makes a registry without drivers.
func NewDrivers() *Drivers {
	return &Drivers{drivers: map[string]*Driver{}, gone: map[string]bool{}, changed: make(chan struct{})}
}

// NotRegisteredError is of a driver that is not registered on this node, which may change at any moment.
type NotRegisteredError struct{ Name string }

// Error implements error.
func (e NotRegisteredError) Error() string {
	return fmt.Sprintf("CSI driver %s is not registered on this node", e.Name)
}

// Cause implements messages.Caused.
func (e NotRegisteredError) Cause() messages.Cause {
	return messages.Cause{Code: messages.CauseDriverAbsent, Name: e.Name}
}

// Get is the driver with this name.
func (d *Drivers) Get(name string) (*Driver, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if one := d.drivers[name]; one != nil {
		return one, nil
	}
	return nil, NotRegisteredError{name}
}

// Register takes a driver that offers itself at an endpoint, the path of a socket. It asks the driver who it is and what it can
// do: a driver that does not answer is not registered. One that is registered again, e.g. since its process was replaced, is
// asked anew; calls that are under way end as they may. While the socket by which it registered is there, no other takes its name
// to another endpoint.
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
	one := &Driver{Name: name, Endpoint: endpoint, socket: socket,
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
		return nil //nolint:nilerr // it is gone, and so is what it held
	}
	return fmt.Errorf("CSI driver %s is registered by %s already", name, held.socket)
}

// check refuses what the API server would not have in a CSINode or in labels of the Node, where other drivers stand beside it.
func (d *Driver) check() error {
	problems := validation.IsDNS1123Subdomain(strings.ToLower(d.Name))
	if len(d.Name) > 63 {
		problems = append(problems, "its name is longer than 63 characters")
	}
	if len(d.NodeID) > maxNodeID {
		problems = append(problems, fmt.Sprintf("its ID of this node is longer than %d characters", maxNodeID))
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

// maxNodeID is the API's bound of a CSINode's node ID, in bytes.
const maxNodeID = 192

// Deregister takes that a driver is no longer offered by that socket. One that has offered itself by another meanwhile stays.
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

// Nudge ends the wait for a change of drivers.
func (d *Drivers) Nudge() { d.change(func() {}) }

// All are the drivers, by name, those that were registered in this process' life and are no more, and what is closed when either
// changes next.
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
