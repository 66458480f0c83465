package config

import (
	"time"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
)

// The functions below make binders out of "where in the target does the value live". A flag's default, shown in the
// help text, is what the target holds when the flag is bound.

func toBool(at func(*target) *bool) binder {
	return func(fs *pflag.FlagSet, t *target, name, usage string) { fs.BoolVar(at(t), name, *at(t), usage) }
}

func toInt32(at func(*target) *int32) binder {
	return func(fs *pflag.FlagSet, t *target, name, usage string) { fs.Int32Var(at(t), name, *at(t), usage) }
}

func toInt64(at func(*target) *int64) binder {
	return func(fs *pflag.FlagSet, t *target, name, usage string) { fs.Int64Var(at(t), name, *at(t), usage) }
}

func toDuration(at func(*target) *time.Duration) binder {
	return func(fs *pflag.FlagSet, t *target, name, usage string) { fs.DurationVar(at(t), name, *at(t), usage) }
}

func toString(at func(*target) *string) binder {
	return func(fs *pflag.FlagSet, t *target, name, usage string) { fs.StringVar(at(t), name, *at(t), usage) }
}

func toStrings(at func(*target) *[]string) binder {
	return func(fs *pflag.FlagSet, t *target, name, usage string) { fs.StringSliceVar(at(t), name, *at(t), usage) }
}

// toMap takes key=value pairs; the first use of the flag drops what was there before.
func toMap(at func(*target) *map[string]string) binder {
	return toValue(func(t *target) pflag.Value { return cliflag.NewMapStringString(at(t)) })
}

// toThresholds takes signal<quantity pairs.
func toThresholds(at func(*target) *map[string]string) binder {
	return toValue(func(t *target) pflag.Value { return cliflag.NewLangleSeparatedMapStringString(at(t)) })
}

func toIP(at func(*target) *string) binder {
	return toValue(func(t *target) pflag.Value { return &ipValue{at(t)} })
}

// toValue is for everything with a pflag.Value of its own.
func toValue(at func(*target) pflag.Value) binder {
	return func(fs *pflag.FlagSet, t *target, name, usage string) { fs.Var(at(t), name, usage) }
}

// nowhere accepts any text and drops it; nowhereBool is for flags that may stand without a value.
func nowhere(fs *pflag.FlagSet, _ *target, name, usage string)     { fs.String(name, "", usage) }
func nowhereBool(fs *pflag.FlagSet, _ *target, name, usage string) { fs.Bool(name, false, usage) }
