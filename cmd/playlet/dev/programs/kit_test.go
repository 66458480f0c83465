package programs

import (
	"os"
	"path/filepath"
	"testing"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte(text), 0o644))
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	return string(text)
}

func there(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// program writes a shell script.
func program(t *testing.T, path, script string) {
	t.Helper()
	write(t, path, "#!/bin/sh\n"+script+"\n")
	must(t, os.Chmod(path, 0o755))
}
