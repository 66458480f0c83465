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

// Ready reads the configuration and asks its plugins for their versions and, from CNI 1.1 on, their STATUS. The result is the
// one that the runtime would get for a pod now. It starts each plugin up to twice, changes nothing, and may be called from
// several goroutines. ctx bounds the whole call. The error is a *NotReady.
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

// HasStatus reports whether the network's version of CNI has STATUS.
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

// usable returns an error unless the plugin exists, runs, and supports the network's version.
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
		wanted = "0.1.0" // CNI: the version of a configuration without one
	}
	if !slices.Contains(info.SupportedVersions(), wanted) {
		return no(PluginUnusable, fmt.Errorf("%s speaks CNI %s, and the configuration wants %s", path,
			strings.Join(info.SupportedVersions(), ", "), wanted))
	}
	return nil
}

// IsNotReady gives the NotReady in err, or nil.
func IsNotReady(err error) *NotReady {
	if n, ok := errors.AsType[*NotReady](err); ok {
		return n
	}
	return nil
}
