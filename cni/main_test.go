package cni

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// TestMain is a CNI plugin where it is called as one, so that plugins of tests are this program under other names.
func TestMain(m *testing.M) {
	if os.Getenv("CNI_COMMAND") != "" {
		plugin()
	}
	// With the race detector a process waits a second at its end, for reports of others.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// orders configure the test plugin's behaviour; they are in its network configuration.
type orders struct {
	CNIVersion string            `json:"cniVersion"`
	Log        string            `json:"log"`     // the calls are written here
	Fail       map[string]uint   `json:"fail"`    // commands that fail, with the code
	Hang       map[string]string `json:"hang"`    // commands that hang, with a file made before
	Garbage    map[string]bool   `json:"garbage"` // commands that are answered with none of CNI's words
}

func plugin() {
	command := os.Getenv("CNI_COMMAND")
	text, _ := io.ReadAll(os.Stdin)
	var o orders
	_ = json.Unmarshal(text, &o) // VERSION has next to nothing
	if o.Log != "" {
		f, err := os.OpenFile(o.Log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err == nil {
			fmt.Fprintln(f, command, os.Getenv("CNI_CONTAINERID"))
			_ = f.Close()
		}
	}
	if command == "VERSION" {
		fmt.Println(`{"cniVersion": "1.1.0", "supportedVersions": ["0.4.0", "1.0.0", "1.1.0"]}`)
		os.Exit(0)
	}
	if file := o.Hang[command]; file != "" {
		_ = os.WriteFile(file, nil, 0o600)
		for {
			time.Sleep(time.Hour) // until it is killed
		}
	}
	var fs unix.Statfs_t // as the plugins of the project do, which forgive a namespace that is not there
	if err := unix.Statfs(os.Getenv("CNI_NETNS"), &fs); command == "DEL" && err == nil && fs.Type != unix.NSFS_MAGIC {
		fmt.Printf(`{"cniVersion": %q, "code": 3, "msg": "unknown FS magic"}`, o.CNIVersion)
		os.Exit(1)
	}
	if code, fails := o.Fail[command]; fails {
		fmt.Printf(`{"cniVersion": %q, "code": %d, "msg": "told to fail", "details": "in a test"}`, o.CNIVersion, code)
		os.Exit(1)
	}
	if o.Garbage[command] {
		fmt.Println("what?")
		os.Exit(2)
	}
	if command == "ADD" {
		fmt.Printf(`{"cniVersion": %q, "ips": [{"address": "192.0.2.9/24"}]}`, o.CNIVersion)
	}
	os.Exit(0)
}

// places makes folders for a test, with the plugins named.
func places(t *testing.T, plugins ...string) Places {
	t.Helper()
	p := Places{ConfDir: t.TempDir(), BinDirs: []string{t.TempDir(), t.TempDir()}, MaxConfigs: 1}
	self, err := os.Executable()
	must(t, err)
	for _, name := range plugins {
		must(t, os.Symlink(self, filepath.Join(p.BinDirs[1], name)))
	}
	return p
}

func (p Places) write(t *testing.T, name, text string) {
	t.Helper()
	must(t, os.WriteFile(filepath.Join(p.ConfDir, name), []byte(text), 0o600))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
