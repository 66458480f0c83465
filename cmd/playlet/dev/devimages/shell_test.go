package devimages

import (
	"archive/tar"
	"errors"
	"io"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// The image with a shell is hello with more in it.
func TestHelloWithShell(t *testing.T) {
	img, err := HelloWithShell([]byte("a program"), []string{"busybox", "sh", "ls"})
	if err != nil {
		t.Fatal(err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if c := config.Config; c.Entrypoint[0] != "/hello" || c.Env[0] != "PATH=/:/bin" {
		t.Errorf("%+v", c)
	}
	files := mutate.Extract(img)
	defer files.Close() //nolint:errcheck // read to the end
	found := map[string]string{}
	for r := tar.NewReader(files); ; {
		head, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		found[head.Name] = head.Linkname + string(text[:min(len(text), 20)])
	}
	if found["bin/busybox"] != "a program" || found["bin/sh"] != "busybox" || found["bin/ls"] != "busybox" ||
		found["hello"] == "" || found["etc/passwd"] == "" {
		t.Errorf("the image has %q", found)
	}
}
