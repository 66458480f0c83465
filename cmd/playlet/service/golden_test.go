package service

import (
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the outputs in testdata")

// The output and the files of the commands, as a user sees them. go test -run TestOutputs ./cmd/playlet/service -update rewrites
// them.
func TestOutputs(t *testing.T) {
	m := newMachine(t)
	var all strings.Builder
	step := func(command string, run func() error) {
		m.output.Reset()
		err := run()
		all.WriteString("$ playlet " + command + "\n" + strings.ReplaceAll(m.output.String(), m.root, "DIR"))
		if err != nil {
			all.WriteString("2> playlet: " + err.Error() + "\nexit code 1\n")
		}
		all.WriteString("\n")
	}
	install := func() error { return m.install(t.Context()) }
	m.dryRun = true
	step("install --dry-run", install)
	m.dryRun = false
	kubelet := filepath.Join(m.root, "usr/lib/systemd/system/kubelet.service")
	config := filepath.Join(m.root, "etc/kubelet.yaml")
	unit := "[Service]\nExecStart=/usr/bin/kubelet --config=" + config + " $KUBELET_EXTRA_ARGS\n"
	err := errors.Join(os.MkdirAll(filepath.Dir(kubelet), 0o755), os.WriteFile(kubelet, []byte(unit), 0o600),
		os.MkdirAll(filepath.Dir(config), 0o755),
		os.WriteFile(config, []byte("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	m.kubelet = "active"
	step("install", install)
	m.replaceKubelet, m.dryRun = true, true
	step("install --replace-kubelet --dry-run", install)
	m.dryRun = false
	step("install --replace-kubelet", install)
	m.replaceKubelet = false
	step("uninstall", func() error { return m.uninstall(t.Context()) })
	m.kubelet = "inactive"
	step("install", install)
	step("install", install)
	if err := os.WriteFile(filepath.Join(m.root, m.config), []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	step("install", install)
	err = filepath.WalkDir(m.root, func(file string, e fs.DirEntry, err error) error {
		if below, _ := filepath.Rel(m.root, file); err == nil && !e.IsDir() && !strings.HasPrefix(below, "download") {
			info, failed := e.Info()
			all.WriteString(info.Mode().String() + " /" + below + "\n")
			err = failed
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	all.WriteString("\n")
	step("uninstall", func() error { return m.uninstall(t.Context()) })
	m.purge = true
	step("uninstall --purge", func() error { return m.uninstall(t.Context()) })

	file := filepath.Join("testdata", "install.txt")
	if *update {
		if err := os.WriteFile(file, []byte(all.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(file); err != nil || string(want) != all.String() {
		t.Errorf("%v\n%s\nwant\n%s", err, all.String(), want)
	}
}
