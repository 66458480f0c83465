package manifest

import (
	"strconv"

	yamlnode "go.yaml.in/yaml/v3"
)

// wrongKeys finds the keys of a YAML document that are there twice in their map or that are no text.
func wrongKeys(text []byte) []fault {
	var document yamlnode.Node
	if err := yamlnode.Unmarshal(text, &document); err != nil {
		return nil
	}
	k := keyChecker{text: text}
	k.check(&document, "")
	return k.faults
}

type keyChecker struct {
	text   []byte
	faults []fault
}

func (k *keyChecker) wrong(key *yamlnode.Node, at, message string) {
	if len(k.faults) == maxProblems {
		return
	}
	k.faults = append(k.faults, fault{field: at, line: fromYAMLLine(k.text, key.Line), message: message})
}

// check goes through all that is written, once; what an alias stands for is written elsewhere.
func (k *keyChecker) check(node *yamlnode.Node, at string) {
	switch node.Kind {
	case yamlnode.DocumentNode:
		for _, content := range node.Content {
			k.check(content, at)
		}
	case yamlnode.SequenceNode:
		for i, item := range node.Content {
			k.check(item, at+"["+strconv.Itoa(i)+"]")
		}
	case yamlnode.MappingNode:
		k.checkMap(node, at)
	}
}

func (k *keyChecker) checkMap(node *yamlnode.Node, at string) {
	seen := map[string]bool{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key := node.Content[i]
		if key.Kind == yamlnode.MappingNode || key.Kind == yamlnode.SequenceNode {
			k.wrong(key, at, "a key must be text, not a map or a list")
			continue
		}
		child := key.Value
		if at != "" {
			child = at + "." + key.Value
		}
		if seen[key.Value] && key.Tag != "!!merge" {
			k.wrong(key, child, "is there twice")
		}
		seen[key.Value] = true
		k.check(node.Content[i+1], child)
	}
}
