package dev

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/cmd/playlet/dev/network"
)

func goodRecord() *Record {
	return &Record{ID: "abc234", Dir: "/tmp/playlet-dev-abc234", Temporary: true, Marked: true, AdminSocket: "/run/playlet/admin.sock",
		Folders: []string{"/run/playlet"}, Changes: network.Changes{Bridge: "playlet0", Subnet: "10.199.0.0/24",
			Sysctls: map[string]string{"net/ipv4/ip_forward": "0"}}}
}

func TestThereIsOneRunAtATime(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	first, err := openStore(dir)
	must(t, err)
	if _, err := openStore(dir); !errors.Is(err, errRuns) {
		t.Errorf("a second one: %v", err)
	}
	record := goodRecord()
	record.Outer.PID = 4711
	must(t, first.save(record))
	if _, err := openStore(dir); !errors.Is(err, errRuns) ||
		!strings.Contains(err.Error(), "process 4711, in /tmp/playlet-dev-abc234") {
		t.Errorf("a second one: %v", err)
	}
	must(t, first.close(false)) // as if it had been killed
	second, err := openStore(dir)
	must(t, err)
	found, err := second.load()
	if err != nil || fmt.Sprint(*found) != fmt.Sprint(*record) {
		t.Errorf("found %+v, %v, want %+v", found, err, record)
	}
	write(t, unfinished(second.path()), "{") // it was killed when it wrote
	must(t, second.close(true))
	if there(dir) {
		t.Error("the store is there")
	}
	third, err := openStore(dir)
	must(t, err)
	if found, err := third.load(); found != nil || err != nil {
		t.Errorf("found %+v, %v", found, err)
	}
	must(t, third.close(true))
}

// Root removes everything that a record names. A modified record, or one of another version, is rejected.
func TestRecord_WithForeignNamesIsRefused(t *testing.T) {
	s, err := openStore(t.TempDir())
	must(t, err)
	defer func() { must(t, s.close(false)) }()
	must(t, goodRecord().check())
	for what, change := range map[string]func(*Record){
		"ID":         func(r *Record) { r.ID = "../x" },
		"no ID":      func(r *Record) { r.ID = "" },
		"dir":        func(r *Record) { r.Dir = "/" },
		"temporary":  func(r *Record) { r.Dir = "/etc" },
		"relative":   func(r *Record) { r.Dir, r.Temporary = "etc", false },
		"up":         func(r *Record) { r.Folders = []string{"/run/../etc"} },
		"socket":     func(r *Record) { r.AdminSocket = "admin.sock" },
		"bridge":     func(r *Record) { r.Bridge = "../eth0" },
		"no bridge":  func(r *Record) { r.Bridge = "" },
		"subnet":     func(r *Record) { r.Subnet = "everything" },
		"sysctl":     func(r *Record) { r.Sysctls = map[string]string{"kernel/core_pattern": "x"} },
		"sysctl up":  func(r *Record) { r.Sysctls = map[string]string{"net/ipv4/../../kernel/x": "x"} },
		"dir to dir": func(r *Record) { r.Dir = "/tmp/playlet-dev-other1" },
	} {
		r := goodRecord()
		change(r)
		if err := r.check(); err == nil {
			t.Errorf("%s: %+v is taken", what, r)
		}
		must(t, s.save(r))
		if _, err := s.load(); err == nil || !strings.Contains(err.Error(), "remove it by hand") {
			t.Errorf("%s: loading says %v", what, err)
		}
	}
	must(t, os.WriteFile(s.path(), []byte("{"), 0o600))
	if _, err := s.load(); err == nil || !strings.Contains(err.Error(), "record.json cannot be read") {
		t.Errorf("half a record: %v", err)
	}
}

func TestRecordFile_ReplacedAtomically(t *testing.T) {
	dir := t.TempDir()
	must(t, writeFile(filepath.Join(dir, "f"), []byte("1"), 0o600))
	must(t, writeFile(filepath.Join(dir, "f"), []byte("2"), 0o640))
	if info, err := os.Stat(filepath.Join(dir, "f")); err != nil || info.Mode().Perm() != 0o640 ||
		read(t, filepath.Join(dir, "f")) != "2" {
		t.Errorf("%v, %v", info, err)
	}
	must(t, os.Mkdir(filepath.Join(dir, "d"), 0o755))
	write(t, filepath.Join(dir, "d/x"), "")
	if err := writeFile(filepath.Join(dir, "d"), nil, 0o600); err == nil {
		t.Error("a folder is replaced")
	}
	if left := filesIn(t, dir); len(left) != 3 {
		t.Errorf("left: %q", left)
	}
}
