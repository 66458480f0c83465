package resourcestest

import "github.com/playlet-dev/playlet/actors/internal/devices/devicestest"

// Plugin is a device plugin; see devicestest.Plugin.
type Plugin = devicestest.Plugin

// NewPlugin makes one; see devicestest.New.
var NewPlugin = devicestest.New
