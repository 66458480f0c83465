package cni

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/utils"
	"github.com/containernetworking/cni/pkg/version"
	"golang.org/x/sys/unix"
	utilio "k8s.io/utils/io"
)

// Network is one that pods are attached to. Immutable.
type Network struct {
	// File is its configuration.
	File string
	// Name, Version and Plugins are the configuration's.
	Name    string
	Version string
	Plugins []Plugin
	// Interface is the name that its interface gets in a pod.
	Interface string

	list *libcni.NetworkConfigList
}

// Plugin is one of a network's.
type Plugin struct {
	Type string
	// IPAM is the plugin that this one has addresses from; empty where it has none.
	IPAM string
}

// Load reads the configurations that the runtime uses, as containerd chooses them: the first files by name that end in
// .conf, .conflist or .json; one of these that is not valid leaves pods without network. The error is a *NotReady.
func Load(p Places) ([]Network, error) {
	files, err := libcni.ConfFiles(p.ConfDir, []string{".conf", ".conflist", ".json"})
	if err != nil || len(files) == 0 {
		return nil, &NotReady{Reason: NoConfiguration, Path: p.ConfDir, Err: err}
	}
	slices.Sort(files)
	if p.MaxConfigs > 0 && len(files) > p.MaxConfigs {
		files = files[:p.MaxConfigs]
	}
	var networks []Network
	for i, file := range files {
		list, err := read(file)
		if err == nil {
			err = check(list)
		}
		if err != nil {
			return nil, &NotReady{Reason: Invalid, Path: file, Err: err}
		}
		networks = append(networks, newNetwork(file, "eth"+strconv.Itoa(i), list))
	}
	return networks, nil
}

func newNetwork(file, ifname string, list *libcni.NetworkConfigList) Network {
	n := Network{File: file, Name: list.Name, Version: list.CNIVersion, Interface: ifname, list: list}
	for _, p := range list.Plugins {
		n.Plugins = append(n.Plugins, Plugin{Type: p.Network.Type, IPAM: p.Network.IPAM.Type})
	}
	return n
}

// maxConfig bounds a configuration, in bytes: pods that install a network write it.
const maxConfig = 1 << 20

// readAtMost reads a regular file of at most limit bytes. It returns an error for a larger one, and for a named pipe, which would
// block.
func readAtMost(file string, limit int64) (data []byte, err error) {
	f, err := os.OpenFile(file, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file: remove it", file)
	}
	if data, err = utilio.ReadAtMost(f, limit+1); err != nil {
		return nil, fmt.Errorf("%s, of which at most %d bytes are read: %w", file, limit, err)
	}
	return data, nil
}

// read reads a configuration file, whose extension distinguishes a list of plugins from a single one.
func read(file string) (*libcni.NetworkConfigList, error) {
	data, err := readAtMost(file, maxConfig)
	if err != nil {
		return nil, err
	}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(data, &keys); err != nil {
		return nil, located(data, err)
	}
	if filepath.Ext(file) == ".conflist" {
		if _, single := keys["type"]; single && keys["plugins"] == nil {
			return nil, errors.New(
				`it holds a single plugin, and a file that ends in .conflist holds a list ("plugins"); call it .conf`)
		}
		return libcni.NetworkConfFromFile(file)
	}
	if keys["plugins"] != nil {
		return nil, fmt.Errorf(
			`it holds a list ("plugins"), and a file that ends in %s holds a single plugin; call it .conflist`, filepath.Ext(file))
	}
	plugin, err := libcni.NetworkPluginConfFromBytes(data)
	if err != nil {
		return nil, err
	}
	return &libcni.NetworkConfigList{
		Name: plugin.Network.Name, CNIVersion: plugin.Network.CNIVersion, Bytes: data, Plugins: []*libcni.PluginConfig{plugin},
	}, nil
}

// located adds the line to an error of JSON's syntax.
func located(data []byte, err error) error {
	syntax, ok := errors.AsType[*json.SyntaxError](err)
	if !ok {
		return err
	}
	line := 1
	for _, b := range data[:min(int(syntax.Offset), len(data))] {
		if b == '\n' {
			line++
		}
	}
	return fmt.Errorf("line %d: %w", line, err)
}

// check finds errors that parsing accepts and that would make ADD fail.
func check(list *libcni.NetworkConfigList) error {
	if list.Name == "" {
		return errors.New(`it has no "name"`)
	}
	if err := asError(utils.ValidateNetworkName(list.Name)); err != nil {
		return fmt.Errorf("name %q: %w", list.Name, err)
	}
	if _, _, _, err := version.ParseVersion(list.CNIVersion); list.CNIVersion != "" && err != nil {
		return fmt.Errorf("cniVersion %q: %w", list.CNIVersion, err)
	}
	for i, p := range list.Plugins {
		if p.Network.Type == "" {
			return fmt.Errorf(`plugins[%d] has no "type"`, i)
		}
	}
	return nil
}

// inlined is a network's configuration in one piece, with the plugins that lie in files of their own.
func (n *Network) inlined() ([]byte, error) {
	whole := map[string]any{"name": n.list.Name, "cniVersion": n.list.CNIVersion, "disableCheck": n.list.DisableCheck,
		"loadOnlyInlinedPlugins": true}
	var plugins []json.RawMessage
	for _, p := range n.list.Plugins {
		plugins = append(plugins, p.Bytes)
	}
	whole["plugins"] = plugins
	return json.Marshal(whole)
}

// alone is the network with one plugin, so that an answer can be laid to it.
func (n *Network) alone(i int) *libcni.NetworkConfigList {
	list := *n.list
	list.Plugins = n.list.Plugins[i : i+1]
	return &list
}

// asError keeps a nil *types.Error from becoming an error that is not nil.
func asError(e *types.Error) error {
	if e == nil {
		return nil
	}
	return e
}
