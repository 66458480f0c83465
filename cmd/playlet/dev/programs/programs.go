// Package programs finds the programs that run pods, and downloads those that are missing.
package programs

import (
	"cmp"
	"context"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Programs are the absolute paths of the programs that run pods.
type Programs struct {
	Containerd string `json:"containerd"`
	Shim       string `json:"shim"` // containerd-shim-runc-v2
	Runc       string `json:"runc"`
	CNIDir     string `json:"cniDir"` // holds the plugins of cniPlugins
	IPTables   string `json:"iptables"`
	Busybox    string `json:"busybox,omitempty"` // a static one, the shell in the sample's image; empty where there is none
}

// cniPlugins are those that the network needs; portmap and the masquerading of bridge call iptables.
var cniPlugins = []string{"bridge", "host-local", "loopback", "portmap"}

// requirement is something to be found, and the Debian package that has it.
type requirement struct{ what, pkg string }

// MissingError is the error for programs that are nowhere.
type MissingError struct {
	things []requirement
	// where things were looked for: programs, plugins.
	programs, plugins []string
}

// Error returns one line with the remedy.
func (m *MissingError) Error() string {
	names := make([]string, len(m.things))
	for i, t := range m.things {
		names[i] = t.what
	}
	return fmt.Sprintf("missing: %s. To have it downloaded: playlet dev --install; to install it: apt-get install %s",
		strings.Join(names, ", "), strings.Join(m.Packages(), " "))
}

// Packages are Debian's, each once.
func (m *MissingError) Packages() []string {
	var out []string
	for _, t := range m.things {
		if !slices.Contains(out, t.pkg) {
			out = append(out, t.pkg)
		}
	}
	return out
}

// Lines lists the folders that were searched for the missing programs.
func (m *MissingError) Lines() []string {
	var programs, plugins []string
	for _, t := range m.things {
		if t.pkg == pluginsPackage {
			plugins = append(plugins, t.what)
		} else {
			programs = append(programs, t.what)
		}
	}
	var out []string
	if len(programs) > 0 {
		out = append(out, fmt.Sprintf("looked for %s in %s", strings.Join(programs, ", "), strings.Join(m.programs, ", ")))
	}
	for _, what := range plugins {
		out = append(out, fmt.Sprintf("looked for %s in %s", what, strings.Join(m.plugins, ", ")))
	}
	return out
}

const (
	pluginsPackage = "containernetworking-plugins"
	shellPackage   = "busybox-static"
)

// shellOnly reports whether only the sample's shell is missing.
func (m *MissingError) shellOnly() bool { return slices.Equal(m.Packages(), []string{shellPackage}) }

// places are the folders to look in, best first.
type places struct{ programs, plugins []string }

// usualPlaces returns the folders of the command line, of $PATH and of the system, the usual ones of CNI, and the parts that the
// project's tests have built (`go run ./e2e/parts`).
func usualPlaces(first []string) places {
	var p places
	add := func(to *[]string, dirs ...string) {
		for _, dir := range dirs {
			if filepath.IsAbs(dir) && !slices.Contains(*to, filepath.Clean(dir)) {
				*to = append(*to, filepath.Clean(dir))
			}
		}
	}
	for _, dir := range first {
		if abs, err := filepath.Abs(dir); err == nil {
			add(&p.programs, abs)
			add(&p.plugins, abs)
		}
	}
	add(&p.programs, filepath.SplitList(os.Getenv("PATH"))...)
	// A root that was become with su has no sbin in its $PATH.
	add(&p.programs, "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
	add(&p.plugins, filepath.SplitList(os.Getenv("CNI_PATH"))...)
	add(&p.plugins, "/usr/lib/cni", "/opt/cni/bin")
	for _, dir := range builtParts(partsCache()) {
		add(&p.programs, dir, filepath.Join(dir, "usr/bin"), filepath.Join(dir, "usr/sbin"), filepath.Join(dir, "bin"))
		add(&p.plugins, dir, filepath.Join(dir, "usr/lib/cni"))
	}
	return p
}

// partsCache returns the folder of the parts that `go run ./e2e/parts` builds, or "" if there is none.
func partsCache() string {
	base := os.Getenv("PLAYLET_CACHE")
	if base == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return ""
		}
		base = filepath.Join(user, "playlet")
	}
	return filepath.Join(base, "parts")
}

// builtParts are the complete parts of a cache: built ones, newest version first, before Debian's packages.
func builtParts(cache string) []string {
	dirs, err := filepath.Glob(filepath.Join(cache, "*"))
	if err != nil {
		return nil // of a pattern that is none
	}
	dirs = slices.DeleteFunc(dirs, func(dir string) bool {
		info, err := os.Stat(dir)
		return err != nil || !info.IsDir() || strings.HasPrefix(filepath.Base(dir), "unfinished-")
	})
	debian := func(dir string) int {
		if strings.HasPrefix(filepath.Base(dir), "debian-") {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(dirs, func(a, b string) int {
		return cmp.Or(cmp.Compare(debian(a), debian(b)), slices.Compare(numbersIn(filepath.Base(b)), numbersIn(filepath.Base(a))))
	})
	return dirs
}

// numbersIn gives the numbers in a name, by which v1.10 comes after v1.9.
func numbersIn(name string) []int {
	var out []int
	for _, digits := range regexp.MustCompile(`[0-9]+`).FindAllString(name, -1) {
		n, err := strconv.Atoi(digits)
		if err != nil {
			n = 0 // longer than any version's
		}
		out = append(out, n)
	}
	return out
}

// find looks for everything, and gives a *MissingError naming all that is nowhere.
func (p places) find() (Programs, error) {
	var out Programs
	missing := &MissingError{programs: p.programs, plugins: p.plugins}
	want := func(to *string, name, pkg string, dirs []string) {
		if *to = Find(name, dirs); *to == "" {
			missing.things = append(missing.things, requirement{name, pkg})
		}
	}
	want(&out.Containerd, "containerd", "containerd", p.programs)
	beside := p.programs
	if out.Containerd != "" { // a shim of the same version, where there are several
		beside = append([]string{filepath.Dir(out.Containerd)}, beside...)
	}
	want(&out.Shim, "containerd-shim-runc-v2", "containerd", beside)
	want(&out.Runc, "runc", "runc", p.programs)
	want(&out.IPTables, "iptables", "iptables", p.programs)
	lacking := cniPlugins
	for _, dir := range p.plugins {
		here := slices.DeleteFunc(slices.Clone(cniPlugins),
			func(name string) bool { return Find(name, []string{dir}) != "" })
		if len(here) == 0 {
			out.CNIDir = dir
			break
		}
		if len(here) < len(lacking) {
			lacking = here
		}
	}
	if out.CNIDir == "" {
		missing.things = append(missing.things, requirement{"CNI plugins " + strings.Join(lacking, " "), pluginsPackage})
	}
	if out.Busybox = staticBusybox(p.programs); out.Busybox == "" {
		missing.things = append(missing.things, requirement{"static busybox", shellPackage})
	}
	if len(missing.things) > 0 {
		return out, missing
	}
	return out, nil
}

// staticBusybox is the first busybox that needs no library; Debian's package busybox has one that does.
func staticBusybox(dirs []string) string {
	for _, dir := range dirs {
		path := Find("busybox", []string{dir})
		if path == "" {
			continue
		}
		file, err := elf.Open(path)
		if err != nil {
			continue
		}
		static := !slices.ContainsFunc(file.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
		if file.Close() == nil && static {
			return path
		}
	}
	return ""
}

// Find gives the path of an executable file, empty when it is in none of the folders.
func Find(name string, dirs []string) string {
	for _, dir := range dirs {
		path := filepath.Join(dir, name)
		info, err := os.Stat(path)
		if err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path
		}
	}
	return ""
}

// IPTables is the path of iptables in the usual places, empty when it is in none.
func IPTables() string { return Find("iptables", usualPlaces(nil).programs) }

// Version is a program's, as far as it decides something here.
type Version struct {
	Major, Minor int
	Text         string // as it prints it
}

// ContainerdVersion asks the program.
func ContainerdVersion(ctx context.Context, path string) (Version, error) {
	out, err := exec.CommandContext(ctx, path, "--version").CombinedOutput()
	if err != nil {
		return Version{}, fmt.Errorf("%s --version: %w: %s", path, err, strings.TrimSpace(string(out)))
	}
	v, err := parseContainerdVersion(string(out))
	if err != nil {
		return v, fmt.Errorf("%s: %w", path, err)
	}
	return v, nil
}

var versionPattern = regexp.MustCompile(`^v?([0-9]{1,4})\.([0-9]{1,4})\b`)

// parseContainerdVersion reads "containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u1".
func parseContainerdVersion(out string) (Version, error) {
	for _, word := range strings.Fields(out) {
		if m := versionPattern.FindStringSubmatch(word); m != nil {
			n := numbersIn(m[0])
			return Version{n[0], n[1], strings.TrimPrefix(word, "v")}, nil
		}
	}
	return Version{}, fmt.Errorf("no version in %q", strings.TrimSpace(out))
}
