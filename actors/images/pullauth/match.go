package pullauth

import (
	"net"
	"path"
	"slices"
	"strings"
)

// hub is the key of credentials for images whose name has no registry.
const hub = "index.docker.io"

// Lookup returns the credentials for a repository ("registry.example:5000/team/app", always with its registry), the most
// specific first, without duplicates.
func (k *Keyring) Lookup(repository string) []*Credential {
	if k == nil {
		return nil
	}
	var found []*Credential
	add := func(c *Credential) {
		if !slices.ContainsFunc(found, c.Same) {
			found = append(found, c)
		}
	}
	for _, e := range k.entries {
		if matches(e.key, repository) {
			add(e.cred)
		}
	}
	if len(found) > 0 || !strings.HasPrefix(repository, "docker.io/") {
		return found
	}
	for _, e := range k.entries {
		if e.key == hub {
			add(e.cred)
		}
	}
	return found
}

// Patterns match repositories. Each has the form host[:port][/path], as in a docker configuration.
type Patterns []string

// Match reports whether one of the patterns matches a repository.
func (p Patterns) Match(repository string) bool {
	return slices.ContainsFunc(p, func(one string) bool { return matches(one, repository) })
}

// matches compares hosts label by label with globs, ports literally, and paths by prefix. A glob never matches more than one
// label.
func matches(key, repository string) bool {
	keyHost, keyPath, _ := strings.Cut(key, "/")
	host, rest, _ := strings.Cut(repository, "/")
	keyName, keyPort := splitPort(keyHost)
	name, port := splitPort(host)
	keyLabels, labels := strings.Split(keyName, "."), strings.Split(name, ".")
	if keyPort != port || len(keyLabels) != len(labels) || !strings.HasPrefix(rest, keyPath) {
		return false
	}
	for i := range labels {
		if ok, err := path.Match(keyLabels[i], labels[i]); err != nil || !ok {
			return false
		}
	}
	return true
}

func splitPort(host string) (name, port string) {
	if name, port, err := net.SplitHostPort(host); err == nil {
		return name, port
	}
	return host, ""
}
