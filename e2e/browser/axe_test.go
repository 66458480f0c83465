//go:build e2e

package browser

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// axe-core is under the MPL-2.0: the test fetches it from npm and nothing of it is kept in the repository.
const (
	axePackage = "axe-core@4.10.2"
	axeArchive = "axe-core-4.10.2.tgz"
	axeSum     = "444de6750ecfdc54527bb7aa096a1e43f67d417aed9e24a3a75c148ede67442d" +
		"d6229cf9ad20af7baa377ec676682a49b6b663499823c170284cee64e2d108d3"
)

// fetchAxe returns the text of axe-core, verified by the pinned SHA-512 of its archive. Without npm, or without its registry, it
// reports a skipped subtest and returns an empty text: the pictures and the widths of the views are still tested.
func fetchAxe(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "npm", "pack", "--silent", axePackage)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Run("axe", func(t *testing.T) { t.Skipf("npm pack %s: %v %s", axePackage, err, bytes.TrimSpace(out)) })
		return ""
	}
	archive, err := os.ReadFile(filepath.Join(dir, axeArchive))
	must(t, err)
	if sum := sha512.Sum512(archive); hex.EncodeToString(sum[:]) != axeSum {
		t.Fatalf("%s has the SHA-512 %x, want %s", axeArchive, sum, axeSum)
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(archive))
	must(t, err)
	for r := tar.NewReader(unzipped); ; {
		file, err := r.Next()
		if errors.Is(err, io.EOF) {
			t.Fatalf("%s has no axe.min.js", axeArchive)
		}
		must(t, err)
		if file.Name == "package/axe.min.js" {
			text, err := io.ReadAll(r)
			must(t, err)
			return string(text)
		}
	}
}

// view takes a picture in both widths and both colour schemes, and fails the test for each violated rule of axe-core and if the
// document is wider than the window.
func (p *page) view(name string) {
	p.t.Helper()
	for _, width := range []int{390, wide} {
		for _, dark := range []bool{true, false} {
			scheme := map[bool]string{true: "dark", false: "light"}[dark]
			shot := fmt.Sprintf("%s-%d-%s", name, width, scheme)
			p.size(width)
			must(p.t, p.Dark(dark))
			must(p.t, p.Eval(`new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 50))))`, nil))
			p.picture(shot)
			var broken []string
			must(p.t, p.Eval(`(async () => {
				const found = typeof axe === 'undefined' ? [] : (await axe.run(document, { resultTypes: ['violations'] })).violations
					.flatMap(v => v.nodes.slice(0, 3).map(n => v.id + ': ' + n.html.slice(0, 160) + ': ' + n.failureSummary));
				const over = document.documentElement.scrollWidth - innerWidth;
				return over > 0 ? [...found, 'the document is ' + over + ' px wider than the window'] : found;
			})()`, &broken))
			if len(broken) > 0 {
				p.t.Errorf("%s:\n%s", shot, strings.Join(broken, "\n"))
			}
		}
	}
}

// size sets the width of the window.
func (p *page) size(width int) {
	p.t.Helper()
	must(p.t, p.Call("Emulation.setDeviceMetricsOverride",
		map[string]any{"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": false}, nil))
}

const wide = 1280
