package cri

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// maxResolvConf is how much of a resolv.conf is read at most, in bytes.
const maxResolvConf = 10 << 20

// ResolvConf is what a resolver's configuration file says (resolv.conf(5)).
type ResolvConf struct {
	Servers, Searches, Options []string
}

// ReadResolvConf reads the file; "" is an empty configuration.
func ReadResolvConf(path string) (conf ResolvConf, err error) {
	if path == "" {
		return ResolvConf{}, nil
	}
	file, err := os.Open(path)
	if err != nil {
		return ResolvConf{}, fmt.Errorf("resolver configuration: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if conf, err = ParseResolvConf(file); err != nil {
		return ResolvConf{}, fmt.Errorf("resolver configuration %s: %w", path, err)
	}
	return conf, nil
}

// ParseResolvConf reads nameserver, search and options lines and passes over the
// rest. Servers add up, the last search line counts, and so does the last option
// of a name. Search domains lose their closing dot and "." itself is dropped, so
// that none counts twice against the limits.
func ParseResolvConf(r io.Reader) (ResolvConf, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxResolvConf+1))
	if err != nil {
		return ResolvConf{}, err
	}
	if len(text) > maxResolvConf {
		return ResolvConf{}, fmt.Errorf("more than %d bytes", maxResolvConf)
	}
	var conf ResolvConf
	for line := range strings.SplitSeq(string(text), "\n") {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		switch fields[0] {
		case "nameserver":
			if len(fields) < 2 {
				return ResolvConf{}, errors.New("a nameserver line names none")
			}
			conf.Servers = append(conf.Servers, fields[1])
		case "search":
			conf.Searches = nil
			for _, domain := range fields[1:] {
				if domain != "." {
					conf.Searches = append(conf.Searches, strings.TrimSuffix(domain, "."))
				}
			}
		case "options":
			for _, option := range fields[1:] {
				conf.Options = setOption(conf.Options, option)
			}
		}
	}
	return conf, nil
}
