package config

import (
	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
)

// onlyFlags are the mirrored flags that Kubernetes does not mean to give up in favour of the file.
var onlyFlags = map[string]bool{
	"v": true, "vmodule": true, "log-flush-frequency": true, "provider-id": true, "fail-cgroupv1": true,
}

// mirror makes the row of a flag that sets a field of KubeletConfiguration. Like the kubelet, using one is answered with
// the advice to use the file.
func mirror(name, field string, bind binder, usage string) flagRow {
	row := flagRow{name: name, field: field, bind: bind, usage: usage}
	if name == "v" {
		row.shorthand = "v"
	}
	if !onlyFlags[name] {
		row.successor = field + " in the --config file"
	}
	return row
}

// in says that a value lives in the configuration.
func in[T any](to func(func(*target) *T) binder, at func(*KubeletConfiguration) *T) binder {
	return to(func(t *target) *T { return at(t.kubelet) })
}

// inValue is in for values with a pflag.Value of their own.
func inValue(at func(*KubeletConfiguration) pflag.Value) binder {
	return toValue(func(t *target) pflag.Value { return at(t.kubelet) })
}

// gatesRow keeps the gates of the command line apart, because they are merged with the file's, gate by gate.
var gatesRow = flagRow{
	name: "feature-gates", field: "featureGates",
	bind:      toValue(func(t *target) pflag.Value { return cliflag.NewMapStringBool(&t.gates) }),
	usage:     "`gate=bool` pairs, comma-separated, that turn features on and off; they are merged with those of the file",
	successor: "featureGates in the --config file",
}
