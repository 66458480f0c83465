package messages

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// values are the exported structs that are carried by messages and are none themselves.
var values = []string{
	"Cause", "ContainerEnded", "ContainerFact", "ContainerResources", "ContainerUser", "CSIDriver", "Ending", "ImageKey", "ManifestProblem", "FailingProbe", "ObservedContainer", "PodFacts",
	"Exit", "ImageUser", "NodeImage", "PendingResize", "PodFailure", "Pressure", "ProbeResults", "Reason",
	"HeldFolder", "Sandbox", "SandboxFact", "Submission", "SubmittedObject", "SubmittedPod", "WatchedContainer",
}

// parts are the paragraphs that end the comment of a message, in this order.
var parts = []string{"Sender", "Receiver", "Reply", "If lost"}

var partsText = regexp.MustCompile(`(?s)(?:^|\n)Sender: [^\s.].*?\.\s+Receiver: [^\s.].*?\.\s+Reply: [^\s.].*?\.\s+If lost: [^\s.].*?\.\s*$`)

const disorder = `its last paragraph is not "Sender: …. Receiver: …. Reply: …. If lost: …."`

// saysAll returns the first part that the comment of a message lacks; empty when it is complete.
func saysAll(doc string) string {
	if partsText.MatchString(doc) {
		return ""
	}
	var missing []string
	for _, p := range parts {
		if !regexp.MustCompile(`(?m)(^|\. )` + p + `: \S`).MatchString(doc) {
			missing = append(missing, p)
		}
	}
	if missing == nil {
		return disorder
	}
	return "it does not say: " + strings.Join(missing, ", ")
}

// TestEveryMessageIsDocumented checks that the comment of every message has all parts. An exported struct is a message unless
// it is among values.
func TestEveryMessageIsDocumented(t *testing.T) {
	seen := map[string]bool{}
	for name, doc := range exportedStructs(t) {
		seen[name] = true
		if slices.Contains(values, name) {
			if strings.Contains(doc, "If lost:") {
				t.Errorf("%s is documented as a message and listed as a value", name)
			}
			continue
		}
		if problem := saysAll(doc); problem != "" {
			t.Errorf("%s: %s", name, problem)
		}
	}
	for _, v := range values {
		if !seen[v] {
			t.Errorf("%s is listed as a value and is no exported struct", v)
		}
	}
	if len(seen) == len(values) {
		t.Error("no message was found")
	}
}

// exportedStructs gives the comments of the package's exported structs by name.
func exportedStructs(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), f.Name(), nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			general, ok := decl.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range general.Specs {
				s, ok := spec.(*ast.TypeSpec)
				if !ok || !s.Name.IsExported() {
					continue
				}
				if _, ok := s.Type.(*ast.StructType); !ok {
					continue
				}
				doc := s.Doc
				if doc == nil && len(general.Specs) == 1 {
					doc = general.Doc
				}
				out[s.Name.Name] = doc.Text()
			}
		}
	}
	return out
}

func TestWhatIsMissingIsNamed(t *testing.T) {
	const lacks = "it does not say: "
	const whole = "PullImage asks.\n\nSender: pod. Receiver: images. Reply: ImagePulled or\nImageFailed.\nIf lost: the pod asks again.\n"
	for _, test := range []struct{ name, doc, want string }{
		{"all is there", whole, ""},
		{"no comment", "", lacks + "Sender, Receiver, Reply, If lost"},
		{"no sender", strings.Replace(whole, "Sender: pod. ", "", 1), lacks + "Sender"},
		{"no receiver", strings.Replace(whole, "Receiver: images. ", "", 1), lacks + "Receiver"},
		{"no reply", strings.Replace(whole, "Reply: ImagePulled or\nImageFailed.", "", 1), lacks + "Reply"},
		{"not what happens when it is lost", strings.Replace(whole, "If lost: the pod asks again.\n", "", 1), lacks + "If lost"},
		{"an empty word", strings.Replace(whole, "Receiver: images.", "Receiver: .", 1), disorder},
		{"another order", "X.\n\nReceiver: a. Sender: b. Reply: none.\nIf lost: nothing.\n", disorder},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := saysAll(test.doc); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

var update = flag.Bool("update", false, "write README.md anew from the comments of the messages")

// TestTableOfMessages: README.md has the messages as their comments describe them. `go generate ./messages` writes it.
func TestTableOfMessages(t *testing.T) {
	want := tableOf(exportedStructs(t))
	if *update {
		if err := os.WriteFile("README.md", []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile("README.md")
	if err != nil || string(got) != want {
		t.Errorf("README.md is not what the comments say (%v): run go generate ./messages", err)
	}
}

func TestNames_AreTheMessages(t *testing.T) {
	want := slices.DeleteFunc(slices.Sorted(maps.Keys(exportedStructs(t))), func(n string) bool { return slices.Contains(values, n) })
	if got := Names(); !slices.Equal(got, want) {
		t.Errorf("got names %q, want %q", got, want)
	}
}

func TestShorten_KeepsCharactersWhole(t *testing.T) {
	for _, c := range []struct {
		text string
		most int
		want string
	}{{"four", 4, "four"}, {"ääää", 7, "ä …"}, {"five5", 4, " …"}, {"five5", 2, " …"}} {
		if got := Shorten(c.text, c.most); got != c.want {
			t.Errorf("Shorten(%q, %d): got %q, want %q", c.text, c.most, got, c.want)
		}
	}
}

// tableOf is the table in Markdown, a line for each message, by name.
func tableOf(docs map[string]string) string {
	var out strings.Builder
	out.WriteString("# Messages\n\nGenerated from the comments by `go generate ./messages`.\n\n" +
		"| message | what it says | sender | receiver | reply | if lost |\n| --- | --- | --- | --- | --- | --- |\n")
	names := slices.Sorted(maps.Keys(docs))
	for _, name := range slices.DeleteFunc(names, func(n string) bool { return slices.Contains(values, n) }) {
		text := strings.Join(strings.Fields(docs[name]), " ")
		fmt.Fprintf(&out, "| `%s` | %s", name, firstSentence(strings.TrimPrefix(text, name+" ")))
		for i, part := range parts {
			_, rest, _ := strings.Cut(text, part+": ")
			if i+1 < len(parts) {
				rest, _, _ = strings.Cut(rest, parts[i+1]+": ")
			}
			fmt.Fprintf(&out, " | %s", strings.TrimSuffix(strings.TrimSpace(rest), "."))
		}
		out.WriteString(" |\n")
	}
	return strings.ReplaceAll(out.String(), "[", "\\[")
}

func firstSentence(text string) string {
	text, _, _ = strings.Cut(text, "Sender: ")
	first, _, _ := strings.Cut(text, ". ")
	return strings.TrimSuffix(strings.TrimSpace(first), ".")
}
