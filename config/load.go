package config

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// unschedulableTaint is what the control plane puts on a cordoned node.
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
	base, plain, warnings, err := readBase(flags)
	if err != nil {
		return nil, nil, err
	}
	t := newTarget(base)
	said, err := flags.replay(fs, t)
	if err != nil {
		return nil, nil, err
	}
	warnings = append(warnings, said...)

	node := t.node
	node.Kubelet, node.Flags = t.kubelet, flags.values(fs)
	node.Kubelet.TypeMeta = metav1.TypeMeta{
		APIVersion: kubeletconfig.SchemeGroupVersion.String(), Kind: "KubeletConfiguration",
	}
	node.Kubelet.FeatureGates = mergeGates(node.Kubelet.FeatureGates, t.gates)
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
	return node, append(warnings, openServer(flags, node)...), nil
}

// readBase returns the configuration that flags are laid over, and what it would be if the files said nothing.
func readBase(flags *Flags) (base, plain *KubeletConfiguration, warnings []Warning, err error) {
	own := flags.scratch.node
	var patches []any
	if own.ConfigDir != "" {
		if patches, err = readDropins(own.ConfigDir); err != nil {
			return nil, nil, nil, fmt.Errorf("--config-dir: %w", err)
		}
	}
	file, folder, err := configFile(own.ConfigFile)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("--config: %w", err)
	}
	gates, err := gatesOf(file, patches, flags.scratch.gates)
	if err != nil {
		return nil, nil, nil, err
	}
	base, plain = file, &KubeletConfiguration{}
	if base == nil {
		base, plain = commandLineBase(gates), commandLineBase(gates)
	}
	for _, c := range []*KubeletConfiguration{base, plain} {
		setDefaults(c, gates)
		defaultEviction(c)
	}
	if folder != "" {
		base.StaticPodPath = folder
		warnings = append(warnings, Warning{Flag: "--config", Message: fmt.Sprintf(
			"%q is a folder and taken for a manifest folder, as of old; --pod-manifest-path or staticPodPath replaces it",
			own.ConfigFile)})
	}
	merged, err := applyDropins(base, patches)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("--config-dir: %w", err)
	}
	setDefaults(merged, gates)
	return merged, plain, warnings, nil
}

// configFile reads what --config names: a file, or a folder, which is returned as an absolute path.
func configFile(path string) (file *KubeletConfiguration, folder string, err error) {
	if path == "" {
		return nil, "", nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, "", err
	}
	if info.IsDir() {
		folder, err = filepath.Abs(path)
		return nil, folder, err
	}
	file, err = readConfigFile(path)
	return file, "", err
}

// gatesOf finds the gates before any default is filled in, because some defaults depend on them.
func gatesOf(file *KubeletConfiguration, patches []any, line map[string]bool) (map[string]bool, error) {
	raw := &KubeletConfiguration{}
	if file != nil {
		raw = file
	}
	raw, err := applyDropins(raw, patches)
	if err != nil {
		return nil, err
	}
	gates, _, err := resolveGates(mergeGates(raw.FeatureGates, line))
	return gates, err
}

// openServer warns where the command line's defaults leave the node's API open to everyone. On a standalone node it is the
// loopback's alone, which the agent says.
func openServer(flags *Flags, n *Node) []Warning {
	c := n.Kubelet
	if flags.given("anonymous-auth") || flags.given("authorization-mode") || !*c.EnableServer ||
		n.Standalone() && n.BootstrapKubeconfigPath == "" && c.Authentication.X509.ClientCAFile == "" ||
		!*c.Authentication.Anonymous.Enabled || c.Authorization.Mode != kubeletconfig.KubeletAuthorizationModeAlwaysAllow {
		return nil
	}
	return []Warning{{Flag: "--config", Message: fmt.Sprintf(
		"without a configuration file the kubelet's API on port %d lets everyone do everything, as in the kubelet; "+
			"a file, or --anonymous-auth=false and --authorization-mode=Webhook, closes it", c.Port)}}
}
