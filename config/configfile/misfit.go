package configfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	kjson "sigs.k8s.io/json"
)

// misfit makes a message out of the failure to decode asJSON. Decoders name the field of a wrong type badly and that of a
// wrong duration or quantity not at all, so the field is looked for: it is the one that fails alone, too.
func misfit(asJSON []byte, failure error) error {
	tree, err := parseTree(asJSON)
	if err != nil {
		return errors.New(Folded(failure.Error()))
	}
	path, found := culprit(tree, nil)
	if found != nil {
		failure = found
	}
	said := Plain(failure)
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](failure); ok {
		held := strings.NewReplacer("string", "text", "array", "a list", "object", "a map of fields").Replace(wrong.Value)
		said = fmt.Sprintf("holds %s where %s is wanted", held, inWords(wrong.Type))
	}
	if len(path) == 0 {
		return errors.New(said)
	}
	return fmt.Errorf("%s: %s", strings.Join(path, "."), said)
}

// inWords is what a type of Go is to who writes the file.
func inWords(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int32, reflect.Int64:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	case reflect.String:
		return "text"
	case reflect.Slice:
		return "a list"
	default:
		return "a map of fields"
	}
}

// Plain is an error's text without the words of Go's library, on one line.
func Plain(err error) string {
	text := Folded(err.Error())
	if wrong, ok := errors.AsType[*strconv.NumError](err); ok {
		switch {
		case wrong.Func == "ParseBool":
			return "it must be true or false"
		case errors.Is(err, strconv.ErrRange):
			return "it is too large a number"
		default:
			return "it must be a number"
		}
	}
	if strings.HasPrefix(text, "time: ") {
		return "it must be a duration, such as 90s, 10m or 1h30m"
	}
	if want, ok := strings.CutPrefix(text, "malformed pair, expect string"); ok { // of Kubernetes' flags
		return "it must be pairs, each as KEY" + want[:min(1, len(want))] + "VALUE"
	}
	return text
}

// Folded is a message of several lines, indented as those of parsers are, in one with single spaces.
func Folded(s string) string { return strings.Join(strings.Fields(s), " ") }

// deepestField bounds the search: nothing in a KubeletConfiguration lies deeper, whatever a hostile file holds.
const deepestField = 6

// culprit returns the path of the first innermost field below tree that cannot be decoded, and its error.
func culprit(tree any, above []string) ([]string, error) {
	fields, ok := tree.(map[string]any)
	if !ok || len(above) == deepestField {
		return nil, nil
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		path := append(slices.Clone(above), name)
		err := decodeAlone(fields[name], path)
		if err == nil {
			continue
		}
		if inner, innerErr := culprit(fields[name], path); innerErr != nil {
			return inner, innerErr
		}
		return path, err
	}
	return nil, nil
}

// decodeAlone decodes a configuration in which nothing but the value at path is set.
func decodeAlone(value any, path []string) error {
	for _, name := range slices.Backward(path) {
		value = map[string]any{name: value}
	}
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return kjson.UnmarshalCaseSensitivePreserveInts(data, &kubeletconfig.KubeletConfiguration{})
}
