package manifest

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Problem is one fault of a manifest.
type Problem struct {
	// Path is the file or URL.
	Path string
	// Line is the line of the fault, or of its innermost parent; 1 is the first, 0 is unknown.
	Line int
	// Pod is namespace/name of the pod, as it would run (a static pod has the node's name appended); "" if it cannot be read.
	Pod string
	// Field is the path of the field in the document, such as spec.containers[0].image or items[2].metadata.name; "" if the
	// problem concerns no field.
	Field string
	// Message describes the fault.
	Message string
	// Warning is true when the pod runs all the same, as under a kubelet.
	Warning bool
}

// Error returns the problem as one line: path:line: field: message.
func (p Problem) Error() string {
	var b strings.Builder
	b.WriteString(p.Path)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d", p.Line)
	}
	b.WriteString(": ")
	if p.Field != "" {
		b.WriteString(p.Field + ": ")
	}
	b.WriteString(p.Message)
	return b.String()
}

// maxProblems limits the reported problems of one document.
const maxProblems = 20

// maxFileProblems limits the reported problems of one file, and maxDocuments its documents.
const (
	maxFileProblems = 200
	maxDocuments    = 20_000
)

// limited returns the first problems of a file, and one that counts the others.
func limited(all []Problem) []Problem {
	if len(all) <= maxFileProblems {
		return all
	}
	return append(all[:maxFileProblems], notListed(all[maxFileProblems], len(all)-maxFileProblems))
}

// notListed returns the problem that replaces a number of others. p is the first of them.
func notListed(p Problem, more int) Problem {
	return Problem{Path: p.Path, Line: p.Line, Warning: p.Warning,
		Message: fmt.Sprintf("further problems from here on are not listed: %d", more)}
}

// refuse returns the problem of a file that is too large to be read, or has too many documents, or nil.
func refuse(path string, data []byte, documents int) []Problem {
	switch {
	case len(data) > MaxBytes:
		return []Problem{{Path: path, Message: fmt.Sprintf("is too large: %d bytes, %d may be", len(data), MaxBytes)}}
	case documents > maxDocuments:
		return []Problem{{Path: path, Message: fmt.Sprintf("has more than %d documents: divide it into several files",
			maxDocuments)}}
	}
	return nil
}

// fault is a problem without its place in the file: it has a field or a line of its document.
type fault struct {
	field   string
	line    int // within the document, 1 is the first; 0: the line of the field
	message string
}

func faultOf(err *field.Error) fault { return fault{field: err.Field, message: err.ErrorBody()} }
