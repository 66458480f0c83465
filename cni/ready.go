package cni

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
)

// Reason is why pods get no network.
type Reason string

// The reasons.
const (
	// NoConfiguration says that the folder holds no configuration, or is not there.
	NoConfiguration Reason = "NoConfiguration"
	// Invalid says that the configuration cannot be read, or is none.
	Invalid Reason = "InvalidConfiguration"
	// PluginMissing says that a plugin, or the IPAM plugin that it calls, is in none of the folders.
	PluginMissing Reason = "PluginMissing"
	// PluginUnusable says that a plugin cannot be run, or does not speak the configuration's version.
	PluginUnusable Reason = "PluginUnusable"
	// StatusNo says that a plugin answers STATUS with an error: it could serve no ADD now (CNI 1.1, STATUS).
	StatusNo Reason = "PluginNotAvailable"
	// NoAnswer says that a plugin took too long.
	NoAnswer Reason = "PluginNoAnswer"
)

// NotReady is the error for a network that is not ready.
type NotReady struct {
	Reason Reason
	// Path is the folder that has no configuration, or the configuration's file.
	Path string
	// Plugin is the one concerned; empty where it is none.
	Plugin string
	// Limited says that pods that run are concerned too: their connectivity may be limited (CNI 1.1, error code 51).
	Limited bool
	Err     error
}

// Error implements error.
func (n *NotReady) Error() string {
	switch n.Reason {
	case NoConfiguration:
		if n.Err != nil {
			return fmt.Sprintf("no network configuration can be read in %s: %v", n.Path, n.Err)
		}
		return "no network configuration in " + n.Path
	case Invalid:
		return fmt.Sprintf("the network configuration %s is not valid: %v", n.Path, n.Err)
	case StatusNo:
		text := fmt.Sprintf("the network plugin %s of %s says that it is not available: %v", n.Plugin, n.Path, n.Err)
		if n.Limited {
			text += "; pods that run may be cut off too"
		}
		return text
	case NoAnswer:
		return fmt.Sprintf("the network plugin %s of %s gives no answer: %v", n.Plugin, n.Path, n.Err)
	case PluginMissing:
		return fmt.Sprintf("the network plugin %s of %s is missing: %v", n.Plugin, n.Path, n.Err)
	default:
		return fmt.Sprintf("the network plugin %s of %s cannot be used: %v", n.Plugin, n.Path, n.Err)
	}
}

// Unwrap gives errors.Is and errors.As the cause.
func (n *NotReady) Unwrap() error { return n.Err }

// Code is the error code that a plugin gave (CNI, "Error"); 0 where it gave none.
func Code(err error) uint {
	if e, ok := errors.AsType[*types.Error](err); ok {
		return e.Code
	}
	return 0
}

// Ready reads the configuration and asks its plugins: which versions they speak and, from CNI 1.1 on, how they are
// (STATUS). It is what the runtime would find, were it asked for a pod now. It starts each plugin up to twice, changes
// nothing, and may be called from several goroutines. ctx bounds it as a whole. The error is a *NotReady.
func Ready(ctx context.Context, p Places) ([]Network, error) {
	networks, err := Load(p)
	if err != nil {
		return nil, err
	}
	for i := range networks {
		if err := networks[i].ready(ctx, p.BinDirs); err != nil {
			return networks, err
		}
	}
	return networks, nil
}

// HasStatus says whether the network's version of CNI has STATUS.
func (n *Network) HasStatus() bool {
	has, err := version.GreaterThanOrEqualTo(n.Version, "1.1.0")
	return err == nil && has
}

func (n *Network) ready(ctx context.Context, dirs []string) error {
	config := libcni.NewCNIConfig(dirs, &runner{})
	for _, p := range n.Plugins {
		for _, name := range []string{p.Type, p.IPAM} {
			if name == "" {
				continue
			}
			if err := n.usable(ctx, name, dirs); err != nil {
				return err
			}
		}
	}
	if !n.HasStatus() {
		return nil
	}
	for i, p := range n.Plugins {
		err := config.GetStatusNetworkList(ctx, n.alone(i))
		if err == nil {
			continue
		}
		no := &NotReady{Reason: StatusNo, Path: n.File, Plugin: p.Type, Limited: Code(err) == types.ErrLimitedConnectivity,
			Err: err}
		if ctx.Err() != nil {
			no.Reason = NoAnswer
		}
		return no
	}
	return nil
}

// usable says whether a plugin is there, runs, and speaks the network's version.
func (n *Network) usable(ctx context.Context, name string, dirs []string) error {
	no := func(why Reason, err error) error {
		return &NotReady{Reason: why, Path: n.File, Plugin: name, Err: err}
	}
	path, err := invoke.FindInPath(name, dirs)
	if err != nil {
		return no(PluginMissing, fmt.Errorf("it is in none of %s", strings.Join(dirs, ", ")))
	}
	info, err := invoke.GetVersionInfo(ctx, path, &runner{})
	switch {
	case err != nil && ctx.Err() != nil:
		return no(NoAnswer, err)
	case err != nil:
		return no(PluginUnusable, err)
	}
	wanted := n.Version
	if wanted == "" {
		wanted = "0.1.0" // CNI: where a configuration says none
	}
	if !slices.Contains(info.SupportedVersions(), wanted) {
		return no(PluginUnusable, fmt.Errorf("%s speaks CNI %s, and the configuration wants %s", path,
			strings.Join(info.SupportedVersions(), ", "), wanted))
	}
	return nil
}

// IsNotReady gives the NotReady in err, or nil.
func IsNotReady(err error) *NotReady {
	n, _ := errors.AsType[*NotReady](err)
	return n
}
