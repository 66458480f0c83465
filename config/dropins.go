package config

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"path/filepath"
)

// dropinSuffix marks the files of --config-dir that count.
const dropinSuffix = ".conf"

// readDropins decodes the drop-ins of folder strictly, in lexical order of their paths, sub-folders included, and returns
// each as a tree of JSON values with its paths made absolute. Other files are passed over.
func readDropins(folder string) ([]any, error) {
	files, err := dropinFiles(folder)
	if err != nil {
		return nil, err
	}
	patches := make([]any, 0, len(files))
	for _, file := range files {
		typed, asJSON, err := readStrict(file)
		if err != nil {
			return nil, err
		}
		patch, err := parseTree(asJSON)
		if err != nil {
			return nil, inFile(file, err)
		}
		resolved, err := toTree(typed)
		if err != nil {
			return nil, inFile(file, err)
		}
		patches = append(patches, adopt(patch, resolved))
	}
	return patches, nil
}

// applyDropins lays patches over c. Each is a JSON merge patch (RFC 7386): objects and maps merge, everything else is
// replaced, and null empties a field, which then has its default again (KEP-3983).
func applyDropins(c *KubeletConfiguration, patches []any) (*KubeletConfiguration, error) {
	if len(patches) == 0 {
		return c, nil
	}
	merged, err := toTree(c)
	if err != nil {
		return nil, err
	}
	for _, patch := range patches {
		merged = mergePatch(merged, patch)
	}
	data, err := json.Marshal(merged)
	if err != nil {
		return nil, err
	}
	result := &KubeletConfiguration{}
	return result, json.Unmarshal(data, result)
}

func dropinFiles(folder string) ([]string, error) {
	var files []string
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if !entry.IsDir() && filepath.Ext(entry.Name()) == dropinSuffix {
			files = append(files, path)
		}
		return nil
	})
	return files, err
}

// toTree and parseTree keep numbers as they are written, so that 64-bit values survive.
func toTree(c *KubeletConfiguration) (any, error) {
	data, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	return parseTree(data)
}

func parseTree(data []byte) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var tree any
	return tree, decoder.Decode(&tree)
}

// adopt replaces the strings of patch, which stand for paths at times, by those of resolved at the same place. Nothing
// but a path differs between the two.
func adopt(patch, resolved any) any {
	switch p := patch.(type) {
	case map[string]any:
		r, _ := resolved.(map[string]any)
		for key, value := range p {
			if own, found := r[key]; found {
				p[key] = adopt(value, own)
			}
		}
	case string:
		if r, ok := resolved.(string); ok {
			return r
		}
	}
	return patch
}

// mergePatch is RFC 7386.
func mergePatch(into, patch any) any {
	changes, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	result, ok := into.(map[string]any)
	if !ok {
		result = map[string]any{}
	}
	for key, value := range changes {
		if value == nil {
			delete(result, key)
			continue
		}
		result[key] = mergePatch(result[key], value)
	}
	return result
}
