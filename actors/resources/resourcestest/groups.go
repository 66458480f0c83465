// Package resourcestest has cgroups in memory, for tests of the whole agent.
package resourcestest

import "github.com/playlet-dev/playlet/actors/internal/linux/cgroups/cgroupstest"

// Groups are cgroups in memory.
type Groups = cgroupstest.Memory

// New has no groups.
func New() *Groups { return cgroupstest.New() }
