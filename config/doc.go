// Package config turns a kubelet's command line and its configuration files into one immutable value, Node.
//
// The order of precedence is the kubelet's: built-in defaults, the --config file, the drop-ins of --config-dir in
// lexical order (KEP-3983), and last the flags that were given explicitly. Files are decoded strictly: an unknown or
// duplicate field is an error that names field and file. Flags of old kubelets are accepted. They take effect where there is
// an equivalent, and produce a Warning that names them and their replacement. A setting that has no effect yet also produces
// a Warning; the tables in effects.go list these.
//
//	fs := pflag.NewFlagSet("playlet", pflag.ContinueOnError)
//	flags := config.AddFlags(fs)
//	if err := fs.Parse(os.Args[1:]); err != nil { … one line, exit 1 … }
//	node, warnings, err := config.Load(flags, fs)
//
// Package configfile reads the files, gates knows the feature gates, flagvalue the flags with a syntax of their own, and
// logformat the formats of the log.
//
// The package has no actors and starts nothing. Behaviour follows Kubernetes 1.36.
package config
