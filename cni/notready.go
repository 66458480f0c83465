package cni

import (
	"errors"
	"fmt"

	"github.com/containernetworking/cni/pkg/types"
)

// Reason is why pods get no network.
type Reason string

// The reasons.
const (
	// NoConfiguration: the folder is absent or holds no configuration.
	NoConfiguration Reason = "NoConfiguration"
	// Invalid: the configuration cannot be read or is not valid.
	Invalid Reason = "InvalidConfiguration"
	// PluginMissing: a plugin, or the IPAM plugin that it calls, is in none of the folders.
	PluginMissing Reason = "PluginMissing"
	// PluginUnusable: a plugin cannot be run, or does not support the configuration's version.
	PluginUnusable Reason = "PluginUnusable"
	// StatusNo: a plugin answers STATUS with an error, so that ADD would fail now (CNI 1.1, STATUS).
	StatusNo Reason = "PluginNotAvailable"
	// NoAnswer: a plugin exceeded its deadline.
	NoAnswer Reason = "PluginNoAnswer"
)

// NotReady is the error for a network that is not ready.
type NotReady struct {
	Reason Reason
	// Path is the folder that has no configuration, or the configuration's file.
	Path string
	// Plugin is the one concerned; empty where it is none.
	Plugin string
	// Limited is true when running pods are affected too: their connectivity may be limited (CNI 1.1, error code 51).
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
