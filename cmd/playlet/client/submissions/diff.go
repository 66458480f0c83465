package submissions

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/playlet-dev/playlet/messages"
)

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
