// Package version has the versions that this program reports.
package version

import (
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
)

// Kubernetes is the release of Kubernetes that Playlet is tested against.
const Kubernetes = "1.36.3"

// Build is set by the linker: -ldflags "-X github.com/playlet-dev/playlet/cmd/playlet/version.Build=v1.2.3".
var Build string

// Playlet returns this program's version: the one set by the linker, or else the one that Go recorded from the checkout.
func Playlet() string {
	if Build != "" {
		return Build
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return versionOf(info)
}

// versionOf is the module's version, or "devel" with the commit where it was built from a checkout.
func versionOf(info *debug.BuildInfo) string {
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	out, dirty := "devel", false
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			out += "-" + s.Value[:min(12, len(s.Value))]
		case "vcs.modified":
			dirty = s.Value == "true"
		}
	}
	if dirty {
		out += "-dirty"
	}
	return out
}

// noMetadata matches characters that are invalid in the build metadata of a semantic version.
var noMetadata = regexp.MustCompile(`[^0-9A-Za-z.-]+`)

// Kubelet is the version that is reported as the kubelet's, in the Node and by --version: the release of Kubernetes that this is
// tested against, with Playlet's own as build metadata, which comparisons of versions ignore.
func Kubelet() string { return kubeletVersion(Playlet()) }

func kubeletVersion(own string) string {
	own = noMetadata.ReplaceAllString(own, "-")
	parts := slices.DeleteFunc(strings.Split(own, "."), func(s string) bool { return s == "" })
	return "v" + Kubernetes + "+playlet-" + strings.Join(parts, ".")
}
