package main

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/playlet-dev/playlet/cmd/playlet/version"
	"github.com/playlet-dev/playlet/config/systemd"
)

// pack is the release of one architecture.
type pack struct {
	arch, version, binary, docs, out string
	at                               time.Time // modification time of every file
}

// file is one file or folder of a package.
type file struct {
	path   string // the installed path
	text   []byte
	mode   int64
	config bool // the administrator's changes are kept
	dir    bool
}

// environment is the additional environment file of the unit.
const environment = `# More flags of the agent; playlet help flags lists them.
PLAYLET_ARGS=--object-dir=/etc/playlet/objects
`

// kubeletUnit is the package's copy of the kubelet's unit. The scripts put it in place where no kubelet has its own.
const kubeletUnit = "/usr/share/playlet/kubelet.service"

// The scripts run under both package managers. An upgrade restarts the agent but no container: the unit stops only the agent, and
// the next agent adopts the containers. A removal leaves the containers running, too. A failing script blocks the package
// manager, so steps that call systemd neither fail nor wait until the agent is ready. Scripts remove no files of the
// administrator, e.g. objects in /etc/playlet/objects.
//
// On a machine without a kubelet, /usr/bin/kubelet and its unit are the package's, as kubeadm needs them: the program is an
// alternative, and the unit a copy, since systemd enables a link under its target's name. The files of a kubelet's package
// replace both; when that is removed, dpkg's trigger restores them. A kubelet that the administrator installed, as a link or with
// a unit in /etc, is left alone.
const (
	shared = `#!/bin/sh
kubelet=$DPKG_ROOT/usr/bin/kubelet
unit=$DPKG_ROOT/usr/lib/systemd/system/kubelet.service
takeover=$DPKG_ROOT/etc/systemd/system/kubelet.service.d/90-playlet.conf
administrators=$DPKG_ROOT/etc/systemd/system/kubelet.service
foreign() {
	{ [ -e "$administrators" ] || [ -L "$administrators" ]; } && ! grep -Eqs "^ExecStart=/usr/bin/kubelet( |$)" "$administrators"
}
alternative() { [ "$(readlink "$kubelet")" = /etc/alternatives/kubelet ]; }
linked() { alternative && [ "$(readlink "$DPKG_ROOT/etc/alternatives/kubelet")" = /usr/bin/playlet ] && ! foreign; }
copied() { grep -qs "^Description=kubelet: Playlet" "$unit"; }
taken() { grep -Eqs "^ExecStart=/usr/bin/playlet( |$)" "$takeover"; }
booted() { [ -z "$DPKG_ROOT" ] && [ -d /run/systemd/system ]; }
`
	afterInstall = shared + `
if { alternative || [ ! -e "$kubelet" ] && [ ! -L "$kubelet" ]; } && { copied || [ ! -e "$unit" ]; } && ! foreign; then
	update-alternatives --install /usr/bin/kubelet kubelet /usr/bin/playlet 10 &&
		cp -f "$DPKG_ROOT/usr/share/playlet/kubelet.service" "$unit" ||
		echo "playlet: /usr/bin/kubelet was not linked to playlet" >&2
fi
if booted; then
	systemctl daemon-reload
	units=playlet.service
	if linked || taken; then units="$units kubelet.service"; fi
	[ "$1" = triggered ] || systemctl --no-block try-restart $units ||
		echo "playlet: the agent was not restarted; do it by: systemctl restart $units" >&2
fi
exit 0
`
	beforeRemove = shared + `
case "$1" in
remove | 0)
	units=playlet.service
	if linked && copied; then units="$units kubelet.service"; fi
	if booted; then
		systemctl disable --now $units ||
			echo "playlet: the agent was not stopped; do it by: systemctl stop $units" >&2
	fi
	update-alternatives --remove kubelet /usr/bin/playlet ||
		echo "playlet: /usr/bin/kubelet is still an alternative; run: update-alternatives --remove kubelet /usr/bin/playlet" >&2
	if copied; then rm -f "$unit"; fi
	rm -f ` + systemd.LogindPath + `
	if taken; then
		rm -f "$takeover"
		if booted; then systemctl daemon-reload; systemctl --no-block try-restart kubelet.service; fi
	fi ;;
esac
exit 0
`
	afterRemove = `#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
fi
`
)

// files returns the files of the package, by path.
func (p pack) files() ([]file, error) {
	binary, err := os.ReadFile(p.binary)
	if err != nil {
		return nil, err
	}
	licence, err := os.ReadFile("LICENSE")
	if err != nil {
		return nil, err
	}
	out := []file{
		{path: "/usr/bin/playlet", text: binary, mode: 0o755},
		{path: "/usr/lib/systemd/system/playlet.service", mode: 0o644,
			text: []byte(systemd.Unit("/usr/bin/playlet", systemd.ConfigPath))},
		{path: kubeletUnit, text: []byte(systemd.ForKubeadm()), mode: 0o644},
		{path: "/etc/playlet", mode: 0o755, dir: true},
		{path: "/etc/playlet/objects", mode: 0o700, dir: true},
		{path: systemd.ConfigPath, text: []byte(systemd.Configuration(false)), mode: 0o600, config: true},
		{path: "/etc/default/playlet", text: []byte(environment), mode: 0o644, config: true},
		{path: "/usr/share/doc/playlet/copyright", text: licence, mode: 0o644},
	}
	for shell, path := range completions {
		text, err := os.ReadFile(filepath.Join(p.docs, shell))
		if err != nil {
			return nil, err
		}
		out = append(out, file{path: path, text: text, mode: 0o644})
	}
	pages, err := filepath.Glob(filepath.Join(p.docs, "man", "*.1"))
	if err != nil || len(pages) == 0 {
		return nil, errors.Join(err, errors.New("there are no pages of the manual"))
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			return nil, err
		}
		out = append(out, file{path: "/usr/share/man/man1/" + filepath.Base(page), text: text, mode: 0o644})
	}
	slices.SortFunc(out, func(a, b file) int { return cmp.Compare(a.path, b.path) })
	return out, nil
}

// number returns the version in the form of package managers: it begins with a digit.
func (p pack) number() string {
	v := strings.TrimPrefix(p.version, "v")
	if v == "" || v[0] < '0' || v[0] > '9' || !strings.Contains(v, ".") {
		v = "0.0.0~" + v // a commit
	}
	return v
}

// make writes the packages, the tarball and the list of modules.
func (p pack) make(ctx context.Context) error {
	files, err := p.files()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(p.out, 0o755); err != nil { // releases are public
		return err
	}
	base := filepath.Join(p.out, "playlet_"+p.number()+"_"+p.arch)
	if err := p.tarball(base+".tar.gz", files); err != nil {
		return err
	}
	if err := p.modules(base + ".cdx.json"); err != nil {
		return err
	}
	stage, err := os.MkdirTemp("", "stage")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(stage) }()
	spec, err := p.stage(stage, files)
	if err != nil {
		return err
	}
	for _, kind := range []string{"deb", "rpm"} {
		cmd := exec.CommandContext(ctx, "go", "run", nfpm, "package", "-f", spec, "-p", kind, "-t", base+"."+kind)
		cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod", "SOURCE_DATE_EPOCH="+strconv.FormatInt(p.at.Unix(), 10))
		if text, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("nfpm: %w: %s", err, text)
		}
	}
	return nil
}

// stage writes the files and the configuration for nfpm, and returns the path of the configuration.
func (p pack) stage(folder string, files []file) (string, error) {
	write := func(name string, text []byte) (string, error) {
		path := filepath.Join(folder, name)
		return path, os.WriteFile(path, text, 0o600)
	}
	var contents []map[string]any
	for i, f := range files {
		entry := map[string]any{"dst": f.path,
			"file_info": map[string]any{"mode": f.mode, "owner": "root", "group": "root", "mtime": p.at.Format(time.RFC3339)}}
		if f.dir {
			entry["type"] = "dir"
		} else {
			path, err := write(strconv.Itoa(i), f.text)
			if err != nil {
				return "", err
			}
			entry["src"] = path
		}
		if f.config {
			entry["type"] = "config|noreplace"
		}
		contents = append(contents, entry)
	}
	scripts := map[string]string{}
	for name, text := range map[string]string{"postinstall": afterInstall, "preremove": beforeRemove, "postremove": afterRemove} {
		path, err := write(name, []byte(text))
		if err != nil {
			return "", err
		}
		scripts[name] = path
	}
	spec, err := yaml.Marshal(map[string]any{
		"name": "playlet", "arch": p.arch, "platform": "linux", "version": p.number(), "version_schema": "none",
		"mtime": p.at.Format(time.RFC3339), "maintainer": "The Playlet authors <playlet@playlet.invalid>",
		"description": "Kubernetes node agent made of actors.\nIt does the kubelet's job, and takes its flags and configuration.",
		"license":     "Apache-2.0", "section": "admin", "contents": contents, "scripts": scripts,
		"recommends": []string{"containerd"},
		"overrides": map[string]any{
			"deb": map[string]any{"provides": []string{"kubelet (= " + version.Kubernetes + ")"}},
			"rpm": map[string]any{"provides": []string{"kubelet = " + version.Kubernetes}},
		},
		"deb": map[string]any{"triggers": map[string]any{"interest_noawait": []string{"/usr/bin/kubelet"}}},
		"rpm": map[string]any{"buildhost": "localhost"},
	})
	if err != nil {
		return "", err
	}
	return write("nfpm.yaml", spec)
}

// tarball writes the files below one folder, for systems without a package.
func (p pack) tarball(path string, files []file) (err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644) //nolint:gosec // what is released is for everybody
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	zip := gzip.NewWriter(f)
	out := tar.NewWriter(zip)
	for _, f := range files {
		h := &tar.Header{Name: "playlet-" + p.number() + f.path, Mode: f.mode, Size: int64(len(f.text)), ModTime: p.at,
			Uname: "root", Gname: "root", Typeflag: tar.TypeReg}
		if f.dir {
			h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
		}
		if err := out.WriteHeader(h); err != nil {
			return err
		}
		if _, err := out.Write(f.text); err != nil {
			return err
		}
	}
	return errors.Join(out.Close(), zip.Close())
}

// modules writes the modules of the program, from its build information, as a bill of materials in CycloneDX 1.5.
func (p pack) modules(path string) error {
	info, err := buildinfo.ReadFile(p.binary)
	if err != nil {
		return fmt.Errorf("the modules in %s: %w", p.binary, err)
	}
	type component struct {
		Type    string `json:"type"`
		Name    string `json:"name"`
		Version string `json:"version"`
		PURL    string `json:"purl,omitempty"`
	}
	components := []component{{"library", "std", info.GoVersion, ""}}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		components = append(components, component{"library", m.Path, m.Version, "pkg:golang/" + m.Path + "@" + m.Version})
	}
	text, err := json.MarshalIndent(map[string]any{
		"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "components": components,
		"metadata": map[string]any{"timestamp": p.at.Format(time.RFC3339),
			"component": component{"application", "playlet", p.number(), ""}},
	}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644) //nolint:gosec // what is released is for everybody
}

// checksums writes SHA256SUMS of all files in the folder, in the format of sha256sum -c.
func checksums(folder string) error {
	const name = "SHA256SUMS"
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	var out strings.Builder
	for _, e := range entries {
		if e.Name() == name || e.IsDir() {
			continue
		}
		f, err := os.Open(filepath.Join(folder, e.Name()))
		if err != nil {
			return err
		}
		sum := sha256.New()
		_, err = io.Copy(sum, f)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
		fmt.Fprintf(&out, "%s  %s\n", hex.EncodeToString(sum.Sum(nil)), e.Name())
	}
	to := filepath.Join(folder, name)
	return os.WriteFile(to, []byte(out.String()), 0o644) //nolint:gosec // what is released is for everybody
}
