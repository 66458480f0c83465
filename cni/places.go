package cni

import (
	"encoding/json"
	"slices"
)

// Where CNI keeps its files by convention.
const (
	DefaultConfDir = "/etc/cni/net.d"
	DefaultBinDir  = "/opt/cni/bin"
)

// Places are where the runtime finds its network.
type Places struct {
	// ConfDir is the folder of network configurations.
	ConfDir string `json:"confDir"`
	// BinDirs are the folders of plugins; the first that has one counts.
	BinDirs []string `json:"binDirs"`
	// MaxConfigs is how many configurations the runtime uses; 0: all.
	MaxConfigs int `json:"maxConfigs"`
}

// DefaultPlaces returns the places of a runtime that does not report its own.
func DefaultPlaces() Places {
	return Places{ConfDir: DefaultConfDir, BinDirs: []string{DefaultBinDir}, MaxConfigs: 1}
}

// PlacesOf reads the places from containerd's verbose Status (CRI). ok is false for runtimes that report no CNI
// configuration.
func PlacesOf(info map[string]string) (p Places, ok bool) {
	var config struct {
		CNI struct {
			BinDir     string   `json:"binDir"` // containerd 1
			BinDirs    []string `json:"binDirs"`
			ConfDir    string   `json:"confDir"`
			MaxConfNum *int     `json:"maxConfNum"`
		} `json:"cni"`
	}
	if err := json.Unmarshal([]byte(info["config"]), &config); err != nil || config.CNI.ConfDir == "" {
		return Places{}, false
	}
	p = Places{ConfDir: config.CNI.ConfDir, BinDirs: config.CNI.BinDirs, MaxConfigs: 1}
	if dir := config.CNI.BinDir; dir != "" && !slices.Contains(p.BinDirs, dir) {
		p.BinDirs = append(p.BinDirs, dir)
	}
	if n := config.CNI.MaxConfNum; n != nil {
		p.MaxConfigs = max(*n, 0)
	}
	return p, true
}
