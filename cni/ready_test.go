package cni

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestPlacesOf(t *testing.T) {
	for _, test := range []struct {
		name, info string
		want       Places
		ok         bool
	}{
		{"containerd 2", `{"cni":{"binDirs":["/a","/b"],"confDir":"/c","maxConfNum":0}}`, Places{"/c", []string{"/a", "/b"}, 0}, true},
		{"containerd 1", `{"cni":{"binDir":"/a","confDir":"/c","maxConfNum":1}}`, Places{"/c", []string{"/a"}, 1}, true},
		{"both", `{"cni":{"binDir":"/a","binDirs":["/a"],"confDir":"/c"}}`, Places{"/c", []string{"/a"}, 1}, true},
		{"another runtime", `{"sandboxImage":"x"}`, Places{}, false},
		{"no JSON", `[crio]`, Places{}, false},
		{"nothing", ``, Places{}, false},
	} {
		if got, ok := PlacesOf(map[string]string{"config": test.info}); ok != test.ok || !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %+v %v", test.name, got, ok)
		}
	}
}

const good = `{"cniVersion": "1.1.0", "name": "pods", "plugins": [{"type": "one", "ipam": {"type": "two"}}]}`

// Ready chooses the same network as the runtime, and explains its absence.
func TestReady(t *testing.T) {
	for _, test := range []struct {
		name    string
		files   map[string]string
		max     int
		want    Reason
		says    string
		plugin  string
		network []string
	}{
		{name: "none", want: NoConfiguration, says: "no network configuration in "},
		{name: "others' files", files: map[string]string{"readme.txt": "x", "x.conf~": "{"}, want: NoConfiguration},
		{name: "good", files: map[string]string{"10-a.conflist": good}, network: []string{"pods"}},
		{name: "the first by name", files: map[string]string{"10-a.conflist": good, "20-b.conf": "{"}, network: []string{"pods"}},
		{name: "the first is bad", files: map[string]string{"20-a.conflist": good, "10-b.conf": "{"}, want: Invalid,
			says: "10-b.conf is not valid: line 1: "},
		{name: "all of them", max: 2, files: map[string]string{"10-a.conflist": good, "20-b.json": `{"name": "b", "type": "one", "cniVersion": "1.0.0"}`}, network: []string{"pods", "b"}},
		{name: "a line", files: map[string]string{"a.conflist": "{\n\"name\": \"x\",\n}"}, want: Invalid, says: "line 3: "},
		{name: "a list in a .conf", files: map[string]string{"a.conf": good}, want: Invalid, says: "call it .conflist"},
		{name: "a plugin in a .conflist", files: map[string]string{"a.conflist": `{"name": "a", "type": "one"}`}, want: Invalid, says: "call it .conf"},
		{name: "no name", files: map[string]string{"a.conf": `{"type": "one"}`}, want: Invalid, says: `no "name"`},
		{name: "a bad name", files: map[string]string{"a.conf": `{"type": "one", "name": "a/b"}`}, want: Invalid, says: `name "a/b"`},
		{name: "no type", files: map[string]string{"a.conflist": `{"name": "a", "plugins": [{}]}`}, want: Invalid, says: "type"},
		{name: "no plugins", files: map[string]string{"a.conflist": `{"name": "a", "plugins": []}`}, want: Invalid, says: "no plugins"},
		{name: "a bad version", files: map[string]string{"a.conf": `{"type": "one", "name": "a", "cniVersion": "new"}`}, want: Invalid, says: `cniVersion "new"`},
		{name: "a plugin is missing", files: map[string]string{"a.conf": `{"type": "three", "name": "a"}`}, want: PluginMissing, plugin: "three", says: "in none of "},
		{name: "an IPAM plugin is missing", files: map[string]string{"a.conf": `{"type": "one", "name": "a", "cniVersion": "1.0.0", "ipam": {"type": "three"}}`}, want: PluginMissing, plugin: "three"},
		{name: "not its version", files: map[string]string{"a.conf": `{"type": "one", "name": "a", "cniVersion": "0.3.1"}`}, want: PluginUnusable, plugin: "one", says: "the configuration wants 0.3.1"},
		{name: "no version is 0.1.0", files: map[string]string{"a.conf": `{"type": "one", "name": "a"}`}, want: PluginUnusable, plugin: "one", says: "wants 0.1.0"},
		{name: "no program", files: map[string]string{"a.conf": `{"type": "text", "name": "a", "cniVersion": "1.0.0"}`}, want: PluginUnusable, plugin: "text"},
		{name: "STATUS says no", files: map[string]string{"a.conf": `{"type": "one", "name": "a", "cniVersion": "1.1.0", "fail": {"STATUS": 50}}`}, want: StatusNo, plugin: "one", says: "told to fail"},
		{name: "STATUS says no of a second plugin", files: map[string]string{"a.conflist": `{"name": "a", "cniVersion": "1.1.0", "plugins": [{"type": "one"}, {"type": "two", "fail": {"STATUS": 51}}]}`}, want: StatusNo, plugin: "two", says: "pods that run may be cut off too"},
		{name: "STATUS says nothing of use", files: map[string]string{"a.conf": `{"type": "one", "name": "a", "cniVersion": "1.1.0", "garbage": {"STATUS": true}}`}, want: StatusNo, says: "what?"},
		{name: "before 1.1 there is no STATUS", files: map[string]string{"a.conf": `{"type": "one", "name": "a", "cniVersion": "1.0.0", "fail": {"STATUS": 50}}`}, network: []string{"a"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := places(t, "one", "two")
			must(t, os.WriteFile(filepath.Join(p.BinDirs[0], "text"), []byte("x"), 0o600))
			p.MaxConfigs = max(test.max, 1)
			for name, text := range test.files {
				p.write(t, name, text)
			}
			networks, err := Ready(t.Context(), p)
			if test.want == "" {
				var names []string
				for _, n := range networks {
					names = append(names, n.Name)
				}
				if err != nil || !reflect.DeepEqual(names, test.network) {
					t.Fatalf("%v, %v", names, err)
				}
				return
			}
			no := IsNotReady(err)
			if no == nil || no.Reason != test.want || no.Plugin != test.plugin && test.plugin != "" ||
				!strings.Contains(err.Error(), test.says) {
				t.Errorf("%+v", err)
			}
		})
	}
}

// An absent folder counts as an empty one; a file in its place is reported as unreadable.
func TestNoFolder(t *testing.T) {
	p := places(t)
	p.ConfDir = filepath.Join(p.ConfDir, "none")
	_, err := Load(p)
	if no := IsNotReady(err); no == nil || no.Reason != NoConfiguration || no.Err != nil {
		t.Errorf("%v", err)
	}
	must(t, os.WriteFile(p.ConfDir, nil, 0o600))
	_, err = Load(p)
	if no := IsNotReady(err); no == nil || no.Reason != NoConfiguration || no.Err == nil {
		t.Errorf("%v", err)
	}
}

// A named pipe in the folder blocks nothing.
func TestLoad_NamedPipe(t *testing.T) {
	p := places(t)
	must(t, unix.Mkfifo(filepath.Join(p.ConfDir, "a.conflist"), 0o600))
	_, err := Load(p)
	if no := IsNotReady(err); no == nil || no.Reason != Invalid || !strings.Contains(err.Error(), "a.conflist is not a regular file") {
		t.Errorf("%v", err)
	}
}

// Pods that install a network write its configuration, and may make it as large as they like.
func TestAConfigurationIsNotReadWhole(t *testing.T) {
	p := places(t)
	p.write(t, "a.conflist", good)
	must(t, os.Truncate(filepath.Join(p.ConfDir, "a.conflist"), 1<<40))
	_, err := Load(p)
	if no := IsNotReady(err); no == nil || no.Reason != Invalid ||
		!strings.Contains(err.Error(), "at most 1048576 bytes are read") {
		t.Errorf("%v", err)
	}
}

// A plugin that hangs is ended, with all that it has started.
func TestAPluginThatHangsIsEnded(t *testing.T) {
	p := places(t, "one")
	begun := filepath.Join(t.TempDir(), "begun")
	p.write(t, "a.conf", `{"type": "one", "name": "a", "cniVersion": "1.1.0", "hang": {"STATUS": "`+begun+`"}}`)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	go func() { cancelWhenThere(begun, func() { cancel(errors.New("enough")) }) }()
	_, err := Ready(ctx, p)
	if no := IsNotReady(err); no == nil || no.Reason != NoAnswer || no.Plugin != "one" ||
		!strings.Contains(err.Error(), "enough") {
		t.Errorf("%v", err)
	}
}

func TestScript_HangingChildIsEnded(t *testing.T) {
	p := places(t)
	begun := filepath.Join(t.TempDir(), "begun")
	must(t, os.WriteFile(filepath.Join(p.BinDirs[0], "one"),
		[]byte("#!/bin/sh\nsleep 1000 &\necho $! >"+begun+".new\nmv "+begun+".new "+begun+"\nwait\n"), 0o700))
	p.write(t, "a.conf", `{"type": "one", "name": "a", "cniVersion": "1.0.0"}`)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { cancelWhenThere(begun, cancel) }()
	_, err := Ready(ctx, p)
	if no := IsNotReady(err); no == nil || no.Reason != NoAnswer {
		t.Errorf("%v", err)
	}
	text, err := os.ReadFile(begun)
	must(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	must(t, err)
	for ended := false; !ended; time.Sleep(time.Millisecond) { // it is signalled, and whoever adopts it reaps it
		state, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		ended = err != nil || strings.Contains(string(state), ") Z ")
	}
}

func cancelWhenThere(file string, cancel func()) {
	for range 60_000 {
		if _, err := os.Stat(file); err == nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	cancel()
}
