package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	kjson "sigs.k8s.io/json"
)

// misfit makes a message out of the failure to decode asJSON. Decoders name the field of a wrong type badly and that of a
// wrong duration or quantity not at all, so the field is looked for: it is the one that fails alone, too.
func misfit(asJSON []byte, failure error) error {
	tree, err := parseTree(asJSON)
	if err != nil {
		return errors.New(oneLine(failure.Error()))
	}
	path, found := culprit(tree, nil)
	if found != nil {
		failure = found
	}
	var wrong *json.UnmarshalTypeError
	said := oneLine(failure.Error())
	if errors.As(failure, &wrong) {
		said = fmt.Sprintf("holds %s where %s is wanted", wrong.Value, wrong.Type)
	}
	if len(path) == 0 {
		return errors.New(said)
	}
	return fmt.Errorf("%s: %s", strings.Join(path, "."), said)
}

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
	return kjson.UnmarshalCaseSensitivePreserveInts(data, &KubeletConfiguration{})
}
