package cni

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/containernetworking/cni/libcni"
	types100 "github.com/containernetworking/cni/pkg/types/100"
)

// NetworkCheck configures a trial: its folders and its time limits.
type NetworkCheck struct {
	Places Places
	// StateDir is libcni's cache of results. The runtime's own is not for us: its garbage collection reads it.
	StateDir string
	// NetNSDir holds the namespace's file. It is the runtime's folder for pods, because network daemons look there. A reboot
	// empties it.
	NetNSDir string
	// Undo bounds each DEL, also after the context of the trial has ended. 0 means 10 s.
	Undo time.Duration
}

// Default places of trials.
const (
	DefaultStateDir = "/run/playlet/doctor"
	DefaultNetNSDir = "/run/netns"
)

// Step is the operation of CNI that failed.
type Step string

// The steps of a trial.
const (
	Add   Step = "ADD"
	Check Step = "CHECK"
	Del   Step = "DEL"
	// Look is our own step: the namespace after ADD differs from the plugin's result.
	Look Step = "after ADD"
	// Left is our own step: something remains after DEL.
	Left Step = "after DEL"
)

// StepError is an operation that failed.
type StepError struct {
	Step    Step
	Network string
	Err     error
}

// Error implements error.
func (e *StepError) Error() string {
	return fmt.Sprintf("%s of network %s: %v", e.Step, e.Network, e.Err)
}

// Unwrap gives errors.Is and errors.As the cause.
func (e *StepError) Unwrap() error { return e.Err }

// Outcome is the network that a pod would get.
type Outcome struct {
	// ContainerID is the name under which the plugins were called.
	ContainerID string      `json:"containerID"`
	Interfaces  []Interface `json:"interfaces,omitempty"`
	Routes      []Route     `json:"routes,omitempty"`
	// Unchecked are the networks whose CNI version or configuration has no CHECK.
	Unchecked []string `json:"unchecked,omitempty"`
	// Notes describe problems that were repaired.
	Notes []string `json:"notes,omitempty"`
	// Took is how long the ADDs took.
	Took time.Duration `json:"-"`
}

// Run attaches a new namespace to the networks like the runtime would a pod, checks it, and detaches it. It detaches also
// when ctx ends or an ADD fails. A bridge made by the plugin stays, as after the last pod. Run first cleans up after killed
// trials. It touches no namespace, address or interface of a pod. The error joins a *StepError for each operation that
// failed; the outcome is returned as well. Several processes may run trials at once.
func (t NetworkCheck) Run(ctx context.Context, networks []Network) (out Outcome, err error) {
	notes, err := t.Sweep(ctx, networks)
	out.Notes = notes
	if err != nil {
		return out, err
	}
	a := t.attempt(prefix + strconv.Itoa(os.Getpid()))
	if err := makeNetNS(a.netns); err != nil {
		return out, err
	}
	out.ContainerID = a.id
	defer func() { err = errors.Join(err, a.end(ctx, networks)) }()
	begun := time.Now()
	for i := range networks {
		if err := a.add(ctx, &networks[i]); err != nil {
			return out, err
		}
	}
	out.Took = time.Since(begun)
	if out.Interfaces, out.Routes, err = look(a.netns); err != nil {
		return out, err
	}
	var errs []error
	for i := range networks {
		errs = append(errs, a.compare(&networks[i], out.Interfaces), a.check(ctx, &networks[i], &out))
	}
	return out, errors.Join(errs...)
}

// attempt is one run of a trial.
type attempt struct {
	settings  NetworkCheck
	id        string // the container's for the plugins
	netns     string
	config    *libcni.CNIConfig
	given     map[string]*types100.Result // by network
	attempted map[string]bool             // networks that ADD was called for
}

func (t NetworkCheck) attempt(id string) *attempt {
	return &attempt{
		settings: t, id: id, netns: filepath.Join(t.NetNSDir, id), given: map[string]*types100.Result{},
		attempted: map[string]bool{}, config: libcni.NewCNIConfigWithCacheDir(t.Places.BinDirs, t.StateDir, &runner{}),
	}
}

// args returns the runtime configuration for the plugins, without the arguments that identify a pod.
func (a *attempt) args(n *Network) *libcni.RuntimeConf {
	return &libcni.RuntimeConf{
		ContainerID: a.id, NetNS: a.netns, IfName: n.Interface, Args: [][2]string{{"IgnoreUnknown", "1"}},
	}
}

func (a *attempt) add(ctx context.Context, n *Network) error {
	fail := func(err error) error { return &StepError{Add, n.Name, err} }
	a.attempted[n.Name] = true
	got, err := a.config.AddNetworkList(ctx, n.list, a.args(n))
	if err != nil {
		return fail(err)
	}
	result, err := types100.NewResultFromResult(got)
	if err != nil {
		return fail(fmt.Errorf("its answer cannot be read: %w", err))
	}
	a.given[n.Name] = result
	return nil
}

// compare checks that the namespace has the interfaces and addresses of the plugin's result.
func (a *attempt) compare(n *Network, found []Interface) error {
	result := a.given[n.Name]
	fail := func(format string, args ...any) error {
		return &StepError{Look, n.Name, fmt.Errorf(format, args...)}
	}
	if len(result.IPs) == 0 {
		return fail("the plugin has given no address")
	}
	for _, link := range found {
		if link.Name != n.Interface {
			continue
		}
		if !link.Up {
			return fail("the interface %s is down", n.Interface)
		}
		for _, ip := range result.IPs {
			if !has(link.Addresses, ip.Address.IP) {
				return fail("the interface %s has not the address %s that the plugin has given", n.Interface, ip.Address.IP)
			}
		}
		return nil
	}
	return fail("there is no interface %s in the namespace", n.Interface)
}

// check calls CHECK, which CNI has from 0.4 on.
func (a *attempt) check(ctx context.Context, n *Network, out *Outcome) error {
	err := a.config.CheckNetworkList(ctx, n.list, a.args(n))
	switch {
	case errors.Is(err, libcni.ErrorCheckNotSupp) || n.list.DisableCheck:
		out.Unchecked = append(out.Unchecked, n.Name)
		return nil
	case err != nil:
		return &StepError{Check, n.Name, err}
	}
	return nil
}

// end undoes the attempt: DEL in reverse order, whatever has happened, and then all that is ours.
func (a *attempt) end(ctx context.Context, networks []Network) error {
	var errs []error
	for i := len(networks) - 1; i >= 0; i-- {
		if n := &networks[i]; a.attempted[n.Name] {
			errs = append(errs, a.del(ctx, n))
		}
	}
	if deleted := errors.Join(errs...); deleted == nil {
		for i := range networks {
			errs = append(errs, a.checkRemoved(&networks[i]))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err // the namespace stays for the next trial to try again
	}
	return removeNetNS(a.netns)
}

func (a *attempt) del(ctx context.Context, n *Network) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), a.settings.undo(),
		errors.New("it took longer than "+a.settings.undo().String()))
	defer cancel()
	if err := a.config.DelNetworkList(ctx, n.list, a.args(n)); err != nil {
		return &StepError{Del, n.Name, err}
	}
	return nil
}

// checkRemoved returns an error if DEL has left the interface, or a lease of host-local.
func (a *attempt) checkRemoved(n *Network) error {
	fail := func(format string, args ...any) error {
		return &StepError{Left, n.Name, fmt.Errorf(format, args...)}
	}
	links, _, err := look(a.netns)
	if err != nil {
		return fail("%w", err)
	}
	for _, link := range links {
		if link.Name == n.Interface {
			return fail("the interface %s is still there", n.Interface)
		}
	}
	for _, lease := range n.leases() {
		if lease.container == a.id {
			return fail("the address is still reserved: %s", lease.file)
		}
	}
	return nil
}

func (t NetworkCheck) undo() time.Duration {
	if t.Undo > 0 {
		return t.Undo
	}
	return 10 * time.Second
}
