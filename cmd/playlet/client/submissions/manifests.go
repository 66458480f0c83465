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

	"sigs.k8s.io/yaml"

	"github.com/playlet-dev/playlet/actors/sources/submit"
	"github.com/playlet-dev/playlet/messages"
)

// downloadTimeout bounds the reading of a manifest at a URL.
const downloadTimeout = time.Minute

// isURL says whether -f names a URL.
func isURL(file string) bool {
	return strings.HasPrefix(file, "http://") || strings.HasPrefix(file, "https://")
}

// manifestFiles puts the files of a folder in its place.
func manifestFiles(names []string) (out []string, err error) {
	for _, name := range names {
		info, err := os.Stat(name)
		if name == "-" || isURL(name) || err != nil || !info.IsDir() {
			out = append(out, name) // what is wrong with it shows when it is read
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
			return nil, fmt.Errorf("%s is no URL", file)
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

// maxDiff bounds the product of the numbers of lines that are compared.
const maxDiff = 16 << 20

// diffContext is how many lines that are the same are shown around those that differ.
const diffContext = 3

// podDiff shows in what the submitted version of a pod differs from the one before, as diff -u does; empty where nothing does.
func podDiff(p messages.SubmittedPod) (string, error) {
	before, err := yamlLines(p.Before)
	if err != nil {
		return "", err
	}
	after, err := yamlLines(p.After)
	if err != nil {
		return "", err
	}
	body := lineDiff(before, after)
	if body == "" {
		return "", nil
	}
	name := p.Namespace + "/" + p.Name
	return fmt.Sprintf("--- pod %s, as it is\n+++ pod %s, as it would be\n%s", name, name, body), nil
}

// yamlLines is an object as people write it, without what encoding adds.
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
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n"), nil
}

// lineDiff marks the lines of a and b by their longest common part, and leaves out those far from a difference.
func lineDiff(a, b []string) string {
	if len(a)*len(b) > maxDiff {
		if slices.Equal(a, b) {
			return ""
		}
		return " (too long to be compared line by line)\n"
	}
	common := make([][]int, len(a)+1) // of what is left from i and j on
	for i := range common {
		common[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	var lines []string
	differs := false
	for i, j := 0, 0; i < len(a) || j < len(b); {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			lines = append(lines, " "+a[i])
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && common[i+1][j] >= common[i][j+1]:
			lines, differs = append(lines, "-"+a[i]), true
			i++
		default:
			lines, differs = append(lines, "+"+b[j]), true
			j++
		}
	}
	if !differs {
		return ""
	}
	var out strings.Builder
	skipped := false
	for i := range lines {
		near := false
		for k := max(0, i-diffContext); k < min(len(lines), i+diffContext+1); k++ {
			near = near || lines[k][0] != ' '
		}
		switch {
		case near:
			out.WriteString(lines[i] + "\n")
		case !skipped:
			out.WriteString(" …\n")
		}
		skipped = !near
	}
	return out.String()
}
