package manifest

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Problem is one thing that is wrong with a manifest.
type Problem struct {
	// Path is the file or URL.
	Path string
	// Line is where the wrong thing stands, or else what it lies in; 1 is the first, 0 is not known.
	Line int
	// Pod is namespace/name of the pod concerned, the name as it would run (with the node's name appended where the
	// pod is static); "" where the document is too broken to tell.
	Pod string
	// Field is the path of the field in the document, such as spec.containers[0].image or items[2].metadata.name; ""
	// where the problem is not one of a field.
	Field string
	// Message says what is wrong.
	Message string
	// Warning is true when the pod runs all the same, as under a kubelet.
	Warning bool
}

// Error makes one line of the problem: path:line: field: message.
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

// maxProblems is how many problems of one document are reported; a machine wrote one that has more.
const maxProblems = 20

// fault is a problem before its place in the file is known: a field of the document, or a line of it.
type fault struct {
	field   string
	line    int // within the document, 1 is the first; 0 where the field tells
	message string
}

func faultOf(err *field.Error) fault { return fault{field: err.Field, message: err.ErrorBody()} }
