package chaos

import (
	"os"
	"strings"
	"testing"
)

// The experiment of the tutorial is valid.
func TestDocs_TutorialsExperiment(t *testing.T) {
	text, err := os.ReadFile("../../../../docs/chaos.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "```yaml\n")
	block, _, closed := strings.Cut(rest, "```")
	if !ok || !closed {
		t.Fatal("docs/chaos.md has no experiment")
	}
	if e, err := readExperiment("mine.yaml", []byte(block)); err != nil {
		t.Errorf("the experiment of docs/chaos.md: %v: %+v", err, e)
	}
}
