package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/playlet-dev/playlet/e2e/parts/install"
)

// EnsureBooted boots a machine of the release once and keeps its memory and disk, from which machines with the usual devices go
// on. That takes seconds in place of a minute, or of many minutes on a busy machine.
func EnsureBooted(ctx context.Context, log io.Writer, release install.Release) error {
	return install.EnsureBooted(ctx, log, release, func(dir string) (err error) {
		m, err := New(dir, Options{Release: release})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, m.Kill()) }()
		if err := m.Start(ctx); err != nil {
			return err
		}
		for _, command := range []string{
			"systemctl is-system-running --wait || systemctl --failed", "until ctr version; do sleep 1; done", "sync",
		} {
			if _, err := m.Output(ctx, command); err != nil {
				return err
			}
		}
		m.drop()
		return m.save(ctx, filepath.Join(dir, "memory"))
	})
}

// save writes the memory of the machine, which runs meanwhile, to a file, and stops it.
func (m *Machine) save(ctx context.Context, file string) error {
	ctx, cancel := context.WithTimeout(ctx, bootLimit)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", m.in("qmp"))
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // QEMU ends next
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	in, out := json.NewDecoder(conn), json.NewEncoder(conn)
	do := func(command string, arguments map[string]any, result any) error {
		if err := out.Encode(map[string]any{"execute": command, "arguments": arguments}); err != nil {
			return err
		}
		for {
			var answer struct {
				Return json.RawMessage `json:"return"`
				Error  json.RawMessage `json:"error"`
			}
			switch err := in.Decode(&answer); {
			case err != nil:
				return err
			case answer.Error != nil:
				return fmt.Errorf("QEMU: %s: %s", command, answer.Error)
			case answer.Return != nil:
				return json.Unmarshal(answer.Return, result)
			}
		}
	}
	none := map[string]any{}
	if err := errors.Join(do("qmp_capabilities", none, &none),
		// The bound on the bandwidth is for networks.
		do("migrate-set-parameters", map[string]any{"max-bandwidth": 1 << 40}, &none),
		do("migrate", map[string]any{"uri": "exec:cat >" + quote(file)}, &none)); err != nil {
		return err
	}
	for {
		var state struct {
			Status string `json:"status"`
			Desc   string `json:"error-desc"`
		}
		if err := do("query-migrate", map[string]any{}, &state); err != nil {
			return err
		}
		switch state.Status {
		case "completed":
			return nil
		case "failed", "cancelled":
			return fmt.Errorf("QEMU: migrate: %s %s", state.Status, state.Desc)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// giveFiles puts Options.Files below FilesPath. A machine that went on from another gets them over HTTP: it cannot have a disk
// that the other had not.
func (m *Machine) giveFiles(ctx context.Context) error {
	if !m.options.resumes() {
		_, err := m.Output(ctx, "mount "+FilesPath)
		return err
	}
	s := httptest.NewServer(http.FileServer(http.Dir(m.options.Files)))
	defer s.Close()
	url := strings.Replace(s.URL, "127.0.0.1", HostAddress, 1)
	return filepath.WalkDir(m.options.Files, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(m.options.Files, path)
		if err != nil {
			return err
		}
		_, err = m.Output(ctx, fmt.Sprintf("test -e %[1]s || curl -fsS --create-dirs -o %[1]s %[2]s",
			quote(filepath.Join(FilesPath, name)), quote(url+"/"+name)))
		return err
	})
}
