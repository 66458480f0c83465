package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"slices"
)

// chunk is the text of one document of a file.
type chunk struct {
	line int // of its first byte, 1 is the first of the file
	at   int // offset of its first byte, without a byte order mark of the file
	data []byte
}

// documentsOf returns the documents of a file, or the reason that the file is refused.
func documentsOf(path string, data []byte) ([]chunk, []Problem) {
	if problems := refuse(path, data, 0); problems != nil {
		return nil, problems
	}
	chunks := split(data, maxDocuments+1)
	if problems := refuse(path, data, len(chunks)); problems != nil {
		return nil, problems
	}
	return chunks, nil
}

// split returns the first documents of a file, at most the given number. JSON values may follow each other without a separator.
// In YAML, a line that begins with --- or ... in its first column is a mark anywhere (YAML 1.2, 9.1.2).
func split(data []byte, most int) []chunk {
	data = unmarked(data)
	if chunks, ok := splitJSON(data, most); ok {
		return chunks
	}
	return splitYAML(data, most)
}

// unmarked returns a file without its byte order mark.
func unmarked(data []byte) []byte { return bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")) }

// Batch is a part of a file: some of its documents.
type Batch struct {
	lines int // of the file before it
	text  []byte
}

// Text returns the documents after as many empty lines as the file has lines before them, so that line numbers are the file's.
func (b Batch) Text() []byte {
	if b.lines == 0 {
		return b.text
	}
	return append(bytes.Repeat([]byte("\n"), b.lines), b.text...)
}

// Batches splits a file between documents into parts with a maximum number of documents. It returns an error for a file with too
// many documents.
func Batches(path string, data []byte, most int) ([]Batch, error) {
	chunks := split(data, maxDocuments+1)
	if len(chunks) <= most {
		return []Batch{{0, data}}, nil
	}
	if problems := refuse(path, nil, len(chunks)); problems != nil {
		return nil, problems[0]
	}
	var out []Batch
	for part := range slices.Chunk(chunks, most) {
		first, last := part[0], part[len(part)-1]
		out = append(out, Batch{first.line - 1, unmarked(data)[first.at : last.at+len(last.data)]})
	}
	return out, nil
}

// SkippedDocument is a document of a kind that a node does not run.
type SkippedDocument struct{ Kind, Name string }

// WithoutUnsupported returns a file with the documents of unsupported kinds blanked. Line numbers stay.
func WithoutUnsupported(data []byte) ([]byte, []SkippedDocument) {
	data = slices.Clone(unmarked(data))
	var out []SkippedDocument
	for _, c := range split(data, math.MaxInt) {
		text, faults, _ := toJSON(c.data)
		if len(faults) > 0 {
			continue
		}
		h, _ := readHead(text, "")
		kind, isText := h.Kind.(string)
		if known := append(submittable(), "Pod", "PodList", "List"); !isText || kind == "" || slices.Contains(known, kind) {
			continue
		}
		_, name := readName(text)
		out = append(out, SkippedDocument{kind, name})
		for i := c.at; i < c.at+len(c.data); i++ {
			if data[i] != '\n' {
				data[i] = ' '
			}
		}
	}
	return data, out
}

// splitJSON succeeds if data consists of JSON objects.
func splitJSON(data []byte, most int) ([]chunk, bool) {
	if !looksLikeJSON(data) {
		return nil, false
	}
	var chunks []chunk
	decoder := json.NewDecoder(bytes.NewReader(data))
	for {
		var value json.RawMessage
		err := decoder.Decode(&value)
		if errors.Is(err, io.EOF) || len(chunks) == most {
			return chunks, true
		}
		if err != nil || !looksLikeJSON(value) {
			return nil, false
		}
		begin := int(decoder.InputOffset()) - len(value)
		chunks = append(chunks, chunk{line: lineAt(data, begin), at: begin, data: value})
	}
}

func looksLikeJSON(data []byte) bool { return bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) }

func splitYAML(data []byte, most int) []chunk {
	var chunks []chunk
	begin, beginLine := 0, 1
	onlyDirectives := true // and comments, since begin: they belong to the document after the mark
	cut := func(end int) {
		if text := data[begin:end]; len(bytes.TrimSpace(text)) > 0 {
			chunks = append(chunks, chunk{line: beginLine, at: begin, data: text})
		}
	}
	for at, line := 0, 1; at < len(data) && len(chunks) < most; line++ {
		next := len(data)
		if i := bytes.IndexByte(data[at:], '\n'); i >= 0 {
			next = at + i + 1
		}
		text := bytes.TrimRight(data[at:next], " \t\r\n")
		switch {
		case isMark(text, "---") && !(onlyDirectives && hasDirective(data[begin:at])):
			cut(at)
			begin, beginLine, onlyDirectives = at, line, len(text) == len("---")
		case isMark(text, "..."):
			cut(at)
			begin, beginLine, onlyDirectives = next, line+1, true
		case len(text) > 0 && text[0] != '#' && text[0] != '%':
			onlyDirectives = false
		}
		at = next
	}
	if len(chunks) < most {
		cut(len(data))
	}
	return chunks
}

// isMark reports whether a line is a mark between documents, alone or with text behind it.
func isMark(line []byte, mark string) bool {
	rest, ok := bytes.CutPrefix(line, []byte(mark))
	return ok && (len(rest) == 0 || rest[0] == ' ' || rest[0] == '\t')
}

func hasDirective(text []byte) bool {
	return bytes.HasPrefix(text, []byte("%")) || bytes.Contains(text, []byte("\n%"))
}
