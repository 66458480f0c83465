package main

import (
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

// mostWords is the permitted number of words in the name of a test. A longer name is a sentence: a subject and the expectation
// are enough, e.g. TestLostSandbox_RunsInitAgain.
const mostWords = 8

var declaredTest = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark|Example)\w*)\(`)

// TestTestNames_AreNoSentences reads all tests, end-to-end ones included.
func TestTestNames_AreNoSentences(t *testing.T) {
	root, tests := os.DirFS("../.."), 0
	err := fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "bin"):
			return fs.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := fs.ReadFile(root, path)
		for _, found := range declaredTest.FindAllSubmatch(text, -1) {
			tests++
			if name := string(found[1]); wordsIn(name) > mostWords {
				t.Errorf("%s: %s has %d words, the limit is %d: name the subject and the expectation", path, name, wordsIn(name), mostWords)
			}
		}
		return err
	})
	if err != nil || tests == 0 {
		t.Errorf("read %d tests: %v", tests, err)
	}
}

// wordsIn counts the words of a name without the first, e.g. Test. A row of capital letters is one word.
func wordsIn(name string) (n int) {
	runes := []rune(name)
	for i := 1; i < len(runes); i++ {
		if unicode.IsUpper(runes[i]) && (!unicode.IsUpper(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1])) {
			n++
		}
	}
	return n
}

func TestWordsIn_CountsInitialismsOnce(t *testing.T) {
	for name, want := range map[string]int{
		"TestNode": 1, "TestAPod": 2, "TestCSINode_HasLimits": 4, "TestUIDs": 2, "FuzzHTTP": 1, "TestTheAPIServerIsAway": 5,
	} {
		if got := wordsIn(name); got != want {
			t.Errorf("words of %s: got %d, want %d", name, got, want)
		}
	}
}
