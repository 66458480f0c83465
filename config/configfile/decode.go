package configfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// maxFileSize is the maximum number of bytes read from one configuration file. The largest sensible file is a few KiB.
const maxFileSize = 4 << 20

// Read decodes the KubeletConfiguration file at path. As the kubelet it ignores fields that are unknown or wrongly cased, and of
// one that is there twice takes the last; ignored has a line for each, with file, line and suggestion. Errors are one line and
// name the file.
func Read(path string) (c *kubeletconfig.KubeletConfiguration, ignored []string, err error) {
	data, ignored, err := readJSON(path)
	if err != nil {
		return nil, nil, err
	}
	c = &kubeletconfig.KubeletConfiguration{}
	return c, ignored, kjson.UnmarshalCaseSensitivePreserveInts(data, c)
}

// readJSON returns the file at path as JSON, in which relative paths are resolved against the folder that the file lies in.
func readJSON(path string) (text []byte, ignored []string, err error) {
	data, err := readLimited(path)
	if err != nil {
		return nil, nil, err
	}
	asJSON, faults, err := decode(data)
	if err != nil {
		return nil, nil, inFile(path, err)
	}
	for _, fault := range faults {
		ignored = append(ignored, path+": "+fault)
	}
	folder, err := filepath.Abs(filepath.Dir(path))
	if err != nil {
		return nil, nil, inFile(path, err)
	}
	tree, err := parseTree(asJSON)
	if err != nil {
		return nil, nil, inFile(path, err)
	}
	for _, field := range PathFields {
		keys := strings.Split(field, ".")
		if file, _, err := unstructured.NestedString(tree, keys...); err == nil && file != "" && !filepath.IsAbs(file) {
			if err := unstructured.SetNestedField(tree, filepath.Join(folder, file), keys...); err != nil {
				return nil, nil, inFile(path, err)
			}
		}
	}
	text, err = json.Marshal(tree)
	return text, ignored, err
}

func readLimited(path string) (data []byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	data, err = io.ReadAll(io.LimitReader(f, maxFileSize+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFileSize {
		return nil, fmt.Errorf("%s: larger than %d bytes", path, maxFileSize)
	}
	return data, nil
}

// decode turns the YAML or JSON of one KubeletConfiguration into JSON. Values that do not fit are errors that name their fields;
// apiVersion and kind are demanded. ignored names the fields that are unknown, wrongly cased or there twice.
func decode(data []byte) (asJSON []byte, ignored []string, err error) {
	if n := documents(data); n != 1 {
		return nil, nil, fmt.Errorf("holds %d documents, one KubeletConfiguration is wanted", n)
	}
	asJSON, err = yaml.YAMLToJSONStrict(data)
	if err != nil {
		fault := errors.New(Folded(strings.TrimPrefix(err.Error(), "yaml: unmarshal errors:")))
		if asJSON, err = yaml.YAMLToJSON(data); err != nil {
			return nil, nil, fault
		}
		ignored = append(ignored, fault.Error()) // a field is there twice
	}
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := yaml.Unmarshal(asJSON, &head); err != nil {
		return nil, nil, errors.New("is not a KubeletConfiguration object: " + Folded(err.Error()))
	}
	wanted := kubeletconfig.SchemeGroupVersion.String()
	switch {
	case head.Kind == "Pod" || head.Kind == "PodList":
		return nil, nil, fmt.Errorf("kind %q: a pod manifest belongs to --pod-manifest-path", head.Kind)
	case head.Kind != "KubeletConfiguration":
		return nil, nil, fmt.Errorf("kind %q: want %q", head.Kind, "KubeletConfiguration")
	case head.APIVersion != wanted:
		return nil, nil, fmt.Errorf("apiVersion %q: want %q", head.APIVersion, wanted)
	}
	strict, err := kjson.UnmarshalStrict(asJSON, &kubeletconfig.KubeletConfiguration{})
	if err != nil {
		return nil, nil, misfitErrors(asJSON, err)
	}
	return asJSON, append(ignored, strictFaults(data, strict)...), nil
}

// misfitErrors names the fields that cannot be decoded, with their expected types.
func misfitErrors(asJSON []byte, failure error) error {
	var out []string
	for _, m := range Misfits(asJSON, &kubeletconfig.KubeletConfiguration{}, "") {
		out = append(out, strings.TrimPrefix(m.Field+": "+m.Wanted, ": "))
	}
	if len(out) == 0 {
		return errors.New(Plain(failure))
	}
	return errors.New(Folded(strings.Join(out, "; ")))
}

// strictFaults names each field that is unknown, or there twice, with its line and a suggestion.
func strictFaults(data []byte, strict []error) []string {
	out := make([]string, 0, len(strict))
	for _, err := range strict {
		at, ok := errors.AsType[kjson.FieldError](err)
		if !ok {
			out = append(out, Folded(err.Error()))
			continue
		}
		said := err.Error()
		if line := Line(data, at.FieldPath()); line > 0 {
			said += fmt.Sprintf(", line %d", line)
		}
		if strings.HasPrefix(said, "unknown") {
			of := reflect.TypeFor[kubeletconfig.KubeletConfiguration]()
			if advice := Misplaced(of, at.FieldPath(), ""); advice != "" {
				said += ": " + advice
			} else if meant := MeantField(of, at.FieldPath()); meant != "" {
				said += fmt.Sprintf(": did you mean %s?", meant)
			}
		}
		out = append(out, said)
	}
	return out
}

// documents counts the YAML documents in data that hold more than blanks and comments.
func documents(data []byte) int {
	count, filled := 0, false
	for line := range bytes.Lines(data) {
		text := bytes.TrimSpace(line)
		if bytes.HasPrefix(line, []byte("---")) && (len(text) == 3 || text[3] == ' ' || text[3] == '#') {
			filled = false
			text = bytes.TrimSpace(text[3:])
		}
		if !filled && len(text) > 0 && text[0] != '#' && text[0] != '%' {
			count++
			filled = true
		}
	}
	return count
}

// PathFields are the fields that name files and folders.
var PathFields = []string{
	"staticPodPath", "authentication.x509.clientCAFile", "tlsCertFile", "tlsPrivateKeyFile", "volumePluginDir", "podLogsDir",
	"resolvConf",
}

// dropinSuffix marks the files of --config-dir that count.
const dropinSuffix = ".conf"

// ReadDropins decodes the drop-ins of folder as Read does, in lexical order of their paths, sub-folders included. Other files are
// passed over.
func ReadDropins(folder string) (patches [][]byte, ignored []string, err error) {
	files, err := dropinFiles(folder)
	if err != nil {
		return nil, nil, err
	}
	for _, file := range files {
		if info, err := os.Stat(file); err == nil && !info.Mode().IsRegular() { // a named pipe would block the start
			return nil, nil, fmt.Errorf("%s is not a regular file: remove it", file)
		}
		patch, faults, err := readJSON(file)
		if err != nil {
			return nil, nil, err
		}
		patches, ignored = append(patches, patch), append(ignored, faults...)
	}
	return patches, ignored, nil
}

// Apply lays patches over c. Each is a JSON merge patch (RFC 7386): objects and maps merge, everything else is
// replaced, and null empties a field, which then has its default again (KEP-3983).
func Apply(c *kubeletconfig.KubeletConfiguration, patches [][]byte) (*kubeletconfig.KubeletConfiguration, error) {
	if len(patches) == 0 {
		return c, nil
	}
	data, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	for _, patch := range patches {
		if data, err = jsonpatch.MergePatch(data, patch); err != nil {
			return nil, err
		}
	}
	merged := &kubeletconfig.KubeletConfiguration{}
	return merged, kjson.UnmarshalCaseSensitivePreserveInts(data, merged)
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

// parseTree keeps numbers as they are written, so that 64-bit values survive.
func parseTree(data []byte) (map[string]any, error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var tree map[string]any
	return tree, decoder.Decode(&tree)
}

// inFile names the file that an error is about.
func inFile(path string, err error) error {
	var pathed interface{ Timeout() bool } // *fs.PathError and *os.SyscallError name their file themselves
	if errors.As(err, &pathed) {
		return err
	}
	return fmt.Errorf("%s: %w", path, err)
}
