package config

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
)

// Flags holds the flags registered by AddFlags, and their values on the command line. Load reads it after parsing. It is not
// safe for concurrent use.
type Flags struct {
	bound   map[string]*boundFlag
	scratch *target
}

// target receives the values of flags. A flag can be bound to any number of targets: the command line is parsed once, and
// applied again over the configuration of the files.
type target struct {
	kubelet *KubeletConfiguration
	node    *Node
	gates   map[string]bool
}

// flagRow describes one flag.
type flagRow struct {
	name      string
	shorthand string
	// field is the path of the KubeletConfiguration field the flag sets, empty where there is none.
	field string
	at    place
	usage string
	// successor replaces the flag. warning is an additional text for the use of the flag; see answer.
	successor, warning string
	// legacy marks flags that Kubernetes 1.36 no longer has. They stay out of the help text.
	legacy bool
}

// secret reports whether the flag's value may be a credential. Messages do not contain it, unlike those of the flag package.
func (r *flagRow) secret() bool { return r.name == "manifest-url-header" || r.name == "manifest-url" }

// CommandLine is a command line without its secrets, to be shown to others.
func CommandLine(args []string) []string {
	out := slices.Clone(args)
	for i, arg := range out {
		name, _, valued := strings.Cut(arg, "=")
		switch row := (flagRow{name: strings.ReplaceAll(strings.TrimPrefix(name, "--"), "_", "-")}); {
		case !row.secret():
		case valued:
			out[i] = name + "=" + masked
		case i+1 < len(out):
			out[i+1] = masked
		}
	}
	return out
}

// boundFlag is a row together with the values its flag was set to, in order.
type boundFlag struct {
	flagRow
	said []string
}

// recorder notes every accepted value of a flag.
type recorder struct {
	pflag.Value
	to *boundFlag
}

// Set parses and records value. Load reports errors in values that may be credentials.
func (r *recorder) Set(value string) error {
	if err := r.Value.Set(value); err != nil && !r.to.secret() {
		return err
	}
	r.to.said = append(r.to.said, value)
	return nil
}

// AddFlags registers on fs every flag of the kubelet of Kubernetes 1.36, the flags of older kubelets that units in the
// field still carry, and Playlet's own. Underscores in names are taken as dashes. Parsing reports an unknown flag or a
// bad value as one line that names it; Load reports bad values that may be credentials. The flags --help and --version
// are left to the command.
func AddFlags(fs *pflag.FlagSet) *Flags {
	f := &Flags{bound: map[string]*boundFlag{}, scratch: newTarget(nil)}
	fs.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	for _, row := range allRows() {
		b := &boundFlag{flagRow: row}
		flag := row.flagOn(f.scratch)
		flag.Value = &recorder{Value: flag.Value, to: b}
		f.bound[row.name] = b
		fs.AddFlag(flag)
	}
	return f
}

// newTarget returns a target over base, or over the defaults where base is nil.
func newTarget(base *KubeletConfiguration) *target {
	if base == nil {
		base = defaultConfiguration(nil)
	}
	return &target{kubelet: base, node: newNode(), gates: map[string]bool{}}
}

// allRows are the rows of all tables, without order.
var allRows = sync.OnceValue(func() []flagRow {
	rows := slices.Concat(legacyRows, goneRows())
	for _, g := range flagGroups {
		rows = append(rows, g.rows...)
	}
	return rows
})

// flagOn makes the row's flag, bound to t.
func (r flagRow) flagOn(t *target) *pflag.Flag {
	one := pflag.NewFlagSet(r.name, pflag.ContinueOnError)
	register(one, r.at(t), r.name, r.usage)
	flag := one.Lookup(r.name)
	flag.Shorthand = r.shorthand
	flag.Hidden = r.legacy
	if flag.DefValue == "[]" {
		flag.DefValue = "" // pflag no longer sees that this is an empty list, and would show it
	}
	return flag
}

// values are the flags with their values, without secrets.
func (f *Flags) values(fs *pflag.FlagSet) map[string]string {
	out := map[string]string{}
	fs.VisitAll(func(flag *pflag.Flag) {
		out[flag.Name] = flag.Value.String()
		if b := f.bound[flag.Name]; b != nil && b.secret() && flag.Changed {
			out[flag.Name] = masked
		}
	})
	return out
}

// replay applies the command line to t. Legacy flags come first, so that the present flag of a setting takes precedence. fs
// is the parsed flag set; its order is kept.
func (f *Flags) replay(fs *pflag.FlagSet, t *target) ([]Warning, error) {
	var warnings []Warning
	for _, legacy := range []bool{true, false} {
		var failed error
		fs.Visit(func(flag *pflag.Flag) {
			b := f.bound[flag.Name]
			if b == nil || b.legacy != legacy || failed != nil {
				return
			}
			again := b.flagOn(t)
			for _, value := range b.said {
				if err := again.Value.Set(value); err != nil {
					if b.secret() {
						value = masked
					}
					failed = problem("--"+b.name, value, "%v", err)
					return
				}
			}
			if said := b.answer(); said != "" && !b.pending() { // pendingSettings answers the others, when all is known
				warnings = append(warnings, Warning{Flag: "--" + b.name, Message: said})
			}
		})
		if failed != nil {
			return nil, failed
		}
	}
	return warnings, nil
}

// Over returns the flags of f as arguments, and the flags of below that f does not set. They are sorted by name.
func (f *Flags) Over(below *Flags) []string {
	var args []string
	for _, name := range slices.Sorted(maps.Keys(f.bound)) {
		said := f.bound[name].said
		if len(said) == 0 {
			said = below.bound[name].said
		}
		for _, value := range said {
			args = append(args, "--"+name+"="+value)
		}
	}
	return args
}

// args returns the flags of f as arguments, sorted by name, with absolute paths of the configuration, and without secrets.
func (f *Flags) args() ([]string, error) {
	none := AddFlags(pflag.NewFlagSet("", pflag.ContinueOnError))
	out := []string{}
	for _, arg := range f.Over(none) {
		name, value, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		if row := f.bound[name]; row.secret() {
			continue
		}
		if (name == "config" || name == "config-dir") && value != "" {
			path, err := filepath.Abs(value)
			if err != nil {
				return nil, err
			}
			arg = "--" + name + "=" + path
		}
		out = append(out, arg)
	}
	return out, nil
}

// given reports whether the command line set the flag, to more than nothing.
func (f *Flags) given(name string) bool { return strings.Join(f.bound[name].said, "") != "" }

// flagOfField returns the present-day flag that sets a configuration field, with its dashes, or "".
func flagOfField(path string) string {
	for _, row := range allRows() {
		rest, found := strings.CutPrefix(path, row.field)
		if found && row.field != "" && !row.legacy && (rest == "" || rest[0] == '[' || rest[0] == '.') {
			return "--" + row.name
		}
	}
	return ""
}
