package submissions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pmezard/go-difflib/difflib"
	"sigs.k8s.io/yaml"

	"github.com/playlet-dev/playlet/actors/sources/submit"
	"github.com/playlet-dev/playlet/messages"
)

// downloadTimeout bounds the reading of a manifest at a URL.
const downloadTimeout = time.Minute

// isURL reports whether -f names a URL.
func isURL(file string) bool {
	return strings.HasPrefix(file, "http://") || strings.HasPrefix(file, "https://")
}

// manifestFiles puts the files of a folder in its place.
func manifestFiles(names []string) (out []string, err error) {
	for _, name := range names {
		info, err := os.Stat(name)
		if name == "-" || isURL(name) || err != nil || !info.IsDir() {
			out = append(out, name) // the read returns any error
			continue
		}
		entries, err := os.ReadDir(name)
		if err != nil {
			return nil, err
		}
		before := len(out)
		for _, e := range entries { // by name
			if !e.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(e.Name())) {
				out = append(out, filepath.Join(name, e.Name()))
			}
		}
		if len(out) == before {
			return nil, fmt.Errorf("there is no manifest in %s: their names end with .yaml, .yml or .json", name)
		}
	}
	return out, nil
}

// read reads one manifest, no more of it than the agent would take.
func (c *submitCommand) read(ctx context.Context, file string) ([]byte, error) {
	from := c.In
	switch {
	case isURL(file):
		ctx, cancel := context.WithTimeout(ctx, downloadTimeout)
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, file, nil)
		if err != nil {
			return nil, fmt.Errorf("%s is not a URL", file)
		}
		transport := &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true}
		answer, err := (&http.Client{Transport: transport}).Do(request)
		if failed, ok := errors.AsType[*url.Error](err); ok {
			return nil, fmt.Errorf("%s cannot be read: %w", file, failed.Err)
		} else if err != nil {
			return nil, err
		}
		defer func() { _ = answer.Body.Close() }() // only read from
		if answer.StatusCode != http.StatusOK {
			return nil, fmt.Errorf("%s answers %s", file, answer.Status)
		}
		from = answer.Body
	case file != "-":
		f, err := os.Open(file)
		if failed, ok := errors.AsType[*fs.PathError](err); ok {
			return nil, fmt.Errorf("%s: %w", file, failed.Err)
		} else if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }() // only read from
		from = f
	}
	data, err := io.ReadAll(io.LimitReader(from, submit.MaxManifest+1))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", shownName(file), err)
	}
	if len(data) > submit.MaxManifest {
		return nil, fmt.Errorf("%s is larger than the %d MiB that a manifest may have", shownName(file), submit.MaxManifest>>20)
	}
	return data, nil
}

func shownName(file string) string {
	if file == "-" {
		return "standard input"
	}
	return file
}

// maxDiff bounds the product of the numbers of lines that are compared: so many steps it may take.
const maxDiff = 16 << 20

// podDiff returns the difference between the submitted version of a pod and the previous one, as diff -u does. It is empty if
// there is none.
func podDiff(p messages.SubmittedPod) (string, error) {
	before, err := yamlLines(p.Before)
	if err != nil {
		return "", err
	}
	after, err := yamlLines(p.After)
	if err != nil {
		return "", err
	}
	name := "pod " + p.Namespace + "/" + p.Name
	if len(before)*len(after) > maxDiff && !slices.Equal(before, after) {
		return name + " differs, and is too long to be compared line by line\n", nil
	}
	return difflib.GetUnifiedDiffString(difflib.UnifiedDiff{A: before, B: after, FromFile: name + ", as it is",
		ToFile: name + ", as it would be", Context: 3})
}

// yamlLines returns an object in its usual YAML form, without the fields that encoding adds.
func yamlLines(object json.RawMessage) ([]string, error) {
	if len(object) == 0 {
		return nil, nil
	}
	var fields map[string]any
	if err := json.Unmarshal(object, &fields); err != nil {
		return nil, err
	}
	delete(fields, "status")
	text, err := yaml.Marshal(fields)
	if err != nil {
		return nil, err
	}
	return slices.Collect(strings.Lines(string(text))), nil
}
