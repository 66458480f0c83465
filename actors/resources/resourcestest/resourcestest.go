// Package resourcestest provides cgroups in memory, for tests of the whole agent.
package resourcestest

import (
	"github.com/playlet-dev/playlet/actors/internal/devices/devicestest"
	"github.com/playlet-dev/playlet/actors/internal/dra/dratest"
	"github.com/playlet-dev/playlet/actors/internal/linux/cgroups/cgroupstest"
)

// Groups are cgroups in memory.
type Groups = cgroupstest.Memory

// New returns an empty set of cgroups.
func New() *Groups { return cgroupstest.New() }

// Plugin is a device plugin; see devicestest.Plugin.
type Plugin = devicestest.Plugin

// NewPlugin returns a device plugin; see devicestest.New.
var NewPlugin = devicestest.New

// Driver is a DRA driver; see dratest.Driver.
type Driver = dratest.Driver

// NewDriver returns a DRA driver; see dratest.New.
var NewDriver = dratest.New
