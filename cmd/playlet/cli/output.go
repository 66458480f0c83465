package cli

import (
	"bytes"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/client-go/util/jsonpath"
)

// NoCell stands for a value that there is not.
const NoCell = "<none>"

const tableGap = 3 // spaces between columns

// Table prints rows in columns. Widths are remembered and only grow, so that the rows of a watch stay under their
// headings for as long as they can.
type Table struct {
	Out     io.Writer
	Heading []string
	Begun   bool // the heading was printed, or is to be left out
	widths  []int
}

// Print writes the rows, and the heading before the first.
func (t *Table) Print(rows [][]string) error {
	if !t.Begun {
		rows = append([][]string{t.Heading}, rows...)
		t.Begun = true
	}
	t.widths = Widths(t.widths, rows)
	var text strings.Builder
	for _, row := range rows {
		text.WriteString(Line(row, t.widths, tableGap) + "\n")
	}
	_, err := io.WriteString(t.Out, text.String())
	return err
}

// Widths returns the widths of columns with these rows. They are never below the previous ones.
func Widths(before []int, rows [][]string) []int {
	for _, row := range rows {
		for i, cell := range row {
			if i == len(before) {
				before = append(before, 0)
			}
			before[i] = max(before[i], utf8.RuneCountInString(cell))
		}
	}
	return before
}

// Line puts cells into their columns, without spaces after the last.
func Line(cells []string, widths []int, gap int) string {
	var b strings.Builder
	for i, cell := range cells {
		b.WriteString(cell)
		if i < len(cells)-1 {
			b.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+gap))
		}
	}
	return b.String()
}

// OrNone is a cell's text, where there is one.
func OrNone(s string) string {
	if s == "" {
		return NoCell
	}
	return s
}

// ObjectOutputs are the formats for which PrinterOf returns printers.
var ObjectOutputs = []string{"yaml", "json", "name", "jsonpath=", "go-template=", "custom-columns="}

// ObjectPrinter prints an API object, or a list of them, for programs.
type ObjectPrinter = func(w io.Writer, object runtime.Object) error

// PrinterOf makes the printer that -o asks for, kubectl's where there is a library of it; nil for a table.
func PrinterOf(output string, bare bool) (ObjectPrinter, error) {
	form, text, _ := strings.Cut(output, "=")
	var p printers.ResourcePrinter
	var err error
	switch form {
	case "table", "wide":
		return nil, nil
	case "yaml", "json":
		return func(w io.Writer, object runtime.Object) error { return PrintObject(w, object, output) }, nil
	case "name":
		p = &printers.NamePrinter{}
		return each(func(w io.Writer, object runtime.Object) error { return p.PrintObj(object, w) }), nil
	case "jsonpath":
		var path *printers.JSONPathPrinter
		if path, err = printers.NewJSONPathPrinter(braced(text)); err == nil {
			path.AllowMissingKeys(true)
			p = path
		}
	case "custom-columns":
		return columnsPrinter(text, bare)
	default:
		p, err = printers.NewGoTemplatePrinter([]byte(text))
	}
	if err != nil {
		return nil, unreadable(output, err)
	}
	return func(w io.Writer, object runtime.Object) error {
		var text bytes.Buffer // where the library fails, it prints the whole object
		if err := p.PrintObj(object, &text); err != nil {
			return unreadable(output, err)
		}
		_, err := text.WriteTo(w)
		return err
	}, nil
}

// ofTheLibrary matches the text around the cause in errors of the libraries for paths and templates.
var ofTheLibrary = regexp.MustCompile(`(?s)^(error executing .*?: )?(Error executing template: )?(template: \w+:[\d:]+ )?` +
	`(executing "output" at <.*?>: )?|\. Printing more information.*`)

// unreadable returns an error about an invalid path or template, with an example.
func unreadable(output string, err error) error {
	form, _, _ := strings.Cut(output, "=")
	such := map[string]string{"jsonpath": "{.status.podIP}", "go-template": "{{.status.podIP}}"}[form]
	said := ofTheLibrary.ReplaceAllString(err.Error(), "")
	return fmt.Errorf("--output=%s: %s (for example: -o %s='%s')", output, said, form, such)
}

// braced lets a path be written without its braces.
func braced(path string) string {
	if strings.Contains(path, "{") {
		return path
	}
	return "{." + strings.TrimPrefix(path, ".") + "}"
}

// each prints the items of a list one by one.
func each(print ObjectPrinter) ObjectPrinter {
	return func(w io.Writer, object runtime.Object) error {
		if !meta.IsListType(object) {
			return print(w, object)
		}
		return meta.EachListItem(object, func(item runtime.Object) error { return print(w, item) })
	}
}

// columnsPrinter prints columns given as HEADING:PATH,...; the library of kubectl's printers has none for them.
func columnsPrinter(text string, bare bool) (ObjectPrinter, error) {
	t := &Table{Begun: bare}
	var cells []*jsonpath.JSONPath
	for _, column := range strings.Split(text, ",") {
		heading, path, _ := strings.Cut(column, ":")
		p := jsonpath.New(heading).AllowMissingKeys(true)
		if err := p.Parse(braced(path)); err != nil || heading == "" || path == "" {
			return nil, fmt.Errorf("--output=custom-columns: %q is not HEADING:PATH, as NAME:.metadata.name", column)
		}
		t.Heading, cells = append(t.Heading, heading), append(cells, p)
	}
	return func(w io.Writer, object runtime.Object) error {
		t.Out = w
		var rows [][]string
		err := each(func(_ io.Writer, item runtime.Object) error {
			data, err := runtime.DefaultUnstructuredConverter.ToUnstructured(item)
			if err != nil {
				return err
			}
			var row []string
			for _, p := range cells {
				found, err := p.FindResults(data)
				if err != nil {
					return err
				}
				var values []string
				for _, v := range slices.Concat(found...) {
					values = append(values, fmt.Sprint(v.Interface()))
				}
				row = append(row, OrNone(strings.Join(values, ",")))
			}
			rows = append(rows, row)
			return nil
		})(w, object)
		if err != nil {
			return err
		}
		return t.Print(rows)
	}, nil
}
