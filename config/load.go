package config

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/playlet-dev/playlet/config/configfile"
	featuregates "github.com/playlet-dev/playlet/config/gates"
)

// unschedulableTaint is the control plane's taint on a cordoned node.
const unschedulableTaint = corev1.TaintNodeUnschedulable

// Load builds the node's configuration from parsed flags: built-in defaults, the --config file over them, the drop-ins
// of --config-dir over that, and the flags that were given over everything; feature gates are merged gate by gate. fs is
// the flag set given to AddFlags, after parsing.
//
// Every error is one line, names the file, field or flag and the value, and lists all that is wrong with the values,
// separated by "; ". Warnings are returned as values, also beside a nil error only.
func Load(flags *Flags, fs *pflag.FlagSet) (*Node, []Warning, error) {
	return load(flags, fs, os.Hostname)
}

func load(flags *Flags, fs *pflag.FlagSet, hostname func() (string, error)) (*Node, []Warning, error) {
	base, plain, addressed, warnings, err := readBase(flags)
	if err != nil {
		return nil, nil, err
	}
	t := newTarget(base)
	t.node.AddressGiven = addressed || flags.given("address")
	said, err := flags.replay(fs, t)
	if err != nil {
		return nil, nil, err
	}
	warnings = append(warnings, said...)

	node := t.node
	node.Kubelet, node.Flags = t.kubelet, flags.values(fs)
	if node.Args, err = flags.args(); err != nil {
		return nil, nil, err
	}
	node.Kubelet.TypeMeta = metav1.TypeMeta{
		APIVersion: kubeletconfig.SchemeGroupVersion.String(), Kind: "KubeletConfiguration",
	}
	node.Kubelet.FeatureGates = featuregates.Merge(node.Kubelet.FeatureGates, t.gates)
	gates, said, err := resolveGates(node.Kubelet.FeatureGates)
	if err != nil {
		return nil, nil, err
	}
	node.gates = gates
	warnings = append(warnings, said...)

	said, err = node.settle(hostname)
	if err != nil {
		return nil, nil, err
	}
	warnings = append(warnings, said...)
	if err := node.validate(); err != nil {
		return nil, nil, err
	}
	warnings = append(warnings, node.reserveCPUs()...)
	warnings = append(warnings, flags.pendingSettings(fs, node.Kubelet, plain, warnings)...)
	return node, append(warnings, openServer(node)...), nil
}

// readBase returns the base configuration for flags, the same for empty files, and whether the files set the server's
// address.
func readBase(flags *Flags) (base, plain *KubeletConfiguration, addressed bool, warnings []Warning, err error) {
	own := flags.scratch.node
	var patches [][]byte
	var ignored []string
	if own.ConfigDir != "" {
		if patches, ignored, err = configfile.ReadDropins(own.ConfigDir); err != nil {
			return nil, nil, false, nil, fmt.Errorf("--config-dir: %w", err)
		}
	}
	warnings = ignoredFields("--config-dir", ignored)
	file, folder, ignored, err := configFile(own.ConfigFile)
	if err != nil {
		return nil, nil, false, nil, fmt.Errorf("--config: %w", err)
	}
	warnings = append(warnings, ignoredFields("--config", ignored)...)
	if base = file; base == nil {
		base = &KubeletConfiguration{}
	}
	said, err := configfile.Apply(base, patches)
	if err != nil {
		return nil, nil, false, nil, err
	}
	addressed = said.Address != ""
	gates, _, err := resolveGates(featuregates.Merge(said.FeatureGates, flags.scratch.gates)) // some defaults depend on them
	if err != nil {
		return nil, nil, false, nil, err
	}
	plain = defaultConfiguration(gates)
	setDefaults(base, gates)
	defaultEviction(base)
	if folder != "" {
		base.StaticPodPath = folder
		warnings = append(warnings, Warning{Flag: "--config", Message: fmt.Sprintf(
			"%q is a folder and taken for a manifest folder, as of old; --pod-manifest-path or staticPodPath replaces it",
			own.ConfigFile)})
	}
	merged, err := configfile.Apply(base, patches)
	if err != nil {
		return nil, nil, false, nil, fmt.Errorf("--config-dir: %w", err)
	}
	setDefaults(merged, gates)
	return merged, plain, addressed, warnings, nil
}

// configFile reads the file of --config, or the files of a folder. It returns the absolute path of the folder.
func configFile(path string) (file *KubeletConfiguration, folder string, ignored []string, err error) {
	if path == "" {
		return nil, "", nil, nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, "", nil, err
	}
	if info.IsDir() {
		folder, err = filepath.Abs(path)
		return nil, folder, nil, err
	}
	file, ignored, err = configfile.Read(path)
	return file, "", ignored, err
}

// ignoredFields are the warnings of fields that the files of a flag have and the kubelet does not.
func ignoredFields(flag string, ignored []string) (out []Warning) {
	for _, text := range ignored {
		out = append(out, Warning{Flag: flag, Message: text + " (passed over, as by the kubelet)", Mistake: true})
	}
	return out
}

// openServer warns where more than the administrators may do everything on the node, which the configuration asks for. On the
// loopback these are the users of the machine.
func openServer(n *Node) []Warning {
	c := n.Kubelet
	address, err := netip.ParseAddr(c.Address)
	if !*c.EnableServer || c.Authorization.Mode != kubeletconfig.KubeletAuthorizationModeAlwaysAllow {
		return nil
	}
	local := err == nil && address.IsLoopback() || n.standalone() && !n.AddressGiven
	var who string
	switch {
	case local && *c.Authentication.Anonymous.Enabled:
		who = "every user of this machine (authentication.anonymous)"
	case local:
		return nil
	case *c.Authentication.Anonymous.Enabled:
		who = "everyone (authentication.anonymous)"
	case *c.Authentication.Webhook.Enabled && !n.standalone():
		who = "every holder of a token of the cluster, and so every pod with a service account (authentication.webhook)"
	default:
		return nil
	}
	return []Warning{{Flag: "--authorization-mode", Message: fmt.Sprintf(
		"AlwaysAllow lets %s do everything by the kubelet's API on port %d; Webhook asks the API server", who, c.Port)}}
}

// standalone reports whether the node has no API server, neither now nor after bootstrapping.
func (n *Node) standalone() bool { return n.KubeconfigPath == "" && n.BootstrapKubeconfigPath == "" }
