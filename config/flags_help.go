package config

import (
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// FlagGroup is one part of the flags' help.
type FlagGroup struct {
	Title string
	Flags []FlagHelp
}

// FlagHelp is the documentation of a flag.
type FlagHelp struct {
	Name, Shorthand string
	Value           string // placeholder of the value; empty if the value is optional
	Usage, Default  string
	// Field is the path of its field in the --config file, empty where there is none.
	Field string
	// InForce is false for a flag that is read, and that nothing looks at.
	InForce bool
}

// NoEffect is the usage of a flag that has none.
const NoEffect = "no effect"

// CommonFlags are those that people set, for a help text that fits on a screen.
var CommonFlags = strings.Fields(`config kubeconfig pod-manifest-path object-dir root-dir container-runtime-endpoint
	hostname-override node-ip admin-socket-group v`)

// Help describes the flags that AddFlags has registered, in groups; the last are those that the kubelet has and that do
// nothing here. Flags of kubelets long gone are left out.
func (f *Flags) Help() []FlagGroup {
	var groups []FlagGroup
	add := func(title string, rows []flagRow) {
		group := FlagGroup{Title: title}
		for _, row := range rows {
			if !row.legacy {
				group.Flags = append(group.Flags, f.HelpOf(row.name))
			}
		}
		groups = append(groups, group)
	}
	for _, g := range flagGroups {
		add(g.title, g.rows)
	}
	rest := goneRows()
	slices.SortFunc(rest, func(a, b flagRow) int { return strings.Compare(a.name, b.name) })
	add("Accepted because units of a kubelet set them, but without effect", rest)
	return groups
}

// HelpOf describes one flag, by its name.
func (f *Flags) HelpOf(name string) FlagHelp {
	b := f.bound[name]
	flag := b.flagOn(newTarget(nil))
	h := FlagHelp{Name: name, Shorthand: b.shorthand, Field: b.field, InForce: !b.pending(), Default: flag.DefValue}
	h.Value, h.Usage = pflag.UnquoteUsage(flag)
	if slices.Contains([]string{"false", "0", "0s", "[]"}, h.Default) {
		h.Default = ""
	}
	return h
}
