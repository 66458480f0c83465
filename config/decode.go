package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// maxFileSize bounds what is read of one configuration file, in bytes. The largest sensible file is a few KiB.
const maxFileSize = 4 << 20

// readConfigFile decodes the KubeletConfiguration file at path strictly and resolves the relative paths in it against
// the folder it lies in. Errors are one line and name the file.
func readConfigFile(path string) (*KubeletConfiguration, error) {
	c, _, err := readStrict(path)
	return c, err
}

// readStrict also returns the file's content as JSON, as it was written.
func readStrict(path string) (*KubeletConfiguration, []byte, error) {
	data, err := readLimited(path)
	if err != nil {
		return nil, nil, err
	}
	asJSON, c, err := decodeStrict(data)
	if err != nil {
		return nil, nil, inFile(path, err)
	}
	folder, err := filepath.Abs(filepath.Dir(path))
	if err != nil {
		return nil, nil, inFile(path, err)
	}
	resolvePaths(c, folder)
	return c, asJSON, nil
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

// decodeStrict turns the YAML or JSON of one KubeletConfiguration into its value, and into JSON. Unknown fields,
// duplicate fields and fields in the wrong case are errors that name them with their path; apiVersion and kind are
// demanded.
func decodeStrict(data []byte) ([]byte, *KubeletConfiguration, error) {
	if n := documents(data); n != 1 {
		return nil, nil, fmt.Errorf("holds %d documents, one KubeletConfiguration is wanted", n)
	}
	asJSON, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, nil, errors.New(oneLine(strings.TrimPrefix(err.Error(), "yaml: unmarshal errors:")))
	}
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := yaml.Unmarshal(asJSON, &head); err != nil {
		return nil, nil, errors.New("is not a KubeletConfiguration object: " + oneLine(err.Error()))
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
	c := &KubeletConfiguration{}
	strict, err := kjson.UnmarshalStrict(asJSON, c)
	if err != nil {
		return nil, nil, misfit(asJSON, err)
	}
	if len(strict) > 0 {
		return nil, nil, strictErrors(data, strict)
	}
	return asJSON, c, nil
}

// strictErrors adds to each field that is unknown, or there twice, its line and what was probably meant.
func strictErrors(data []byte, strict []error) error {
	out := make(lineError, 0, len(strict))
	for _, err := range strict {
		at, ok := errors.AsType[kjson.FieldError](err)
		if !ok {
			out = append(out, err)
			continue
		}
		said := err.Error()
		if line := lineOf(data, at.FieldPath()); line > 0 {
			said += fmt.Sprintf(", line %d", line)
		}
		meant := MeantField(reflect.TypeFor[KubeletConfiguration](), at.FieldPath())
		if meant != "" && strings.HasPrefix(said, "unknown") {
			said += fmt.Sprintf(": did you mean %s?", meant)
		}
		out = append(out, errors.New(said))
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

// pathFields are the fields that name files and folders.
func pathFields(c *KubeletConfiguration) []*string {
	fields := []*string{
		&c.StaticPodPath, &c.Authentication.X509.ClientCAFile, &c.TLSCertFile, &c.TLSPrivateKeyFile,
		&c.VolumePluginDir, &c.PodLogsDir,
	}
	if c.ResolverConfig != nil {
		fields = append(fields, c.ResolverConfig)
	}
	return fields
}

func resolvePaths(c *KubeletConfiguration, folder string) {
	for _, field := range pathFields(c) {
		if *field != "" && !filepath.IsAbs(*field) {
			*field = filepath.Join(folder, *field)
		}
	}
}
