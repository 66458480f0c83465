package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
)

// chunk is the text of one document of a file.
type chunk struct {
	line int // of its first byte, 1 is the first of the file
	data []byte
}

// split takes a file apart into documents. JSON values may follow each other without anything between them; in YAML a
// line that begins with --- or ... in its first column is a mark, wherever it stands (YAML 1.2, 9.1.2).
func split(data []byte) []chunk {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	if chunks, ok := splitJSON(data); ok {
		return chunks
	}
	return splitYAML(data)
}

// splitJSON succeeds where all of data is JSON objects.
func splitJSON(data []byte) ([]chunk, bool) {
	if !looksLikeJSON(data) {
		return nil, false
	}
	var chunks []chunk
	decoder := json.NewDecoder(bytes.NewReader(data))
	for {
		var value json.RawMessage
		err := decoder.Decode(&value)
		if errors.Is(err, io.EOF) {
			return chunks, true
		}
		if err != nil || !looksLikeJSON(value) {
			return nil, false
		}
		begin := int(decoder.InputOffset()) - len(value)
		chunks = append(chunks, chunk{line: lineAt(data, begin), data: value})
	}
}

func looksLikeJSON(data []byte) bool { return bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) }

func splitYAML(data []byte) []chunk {
	var chunks []chunk
	begin, beginLine := 0, 1
	onlyDirectives := true // and comments, since begin: they belong to the document after the mark
	cut := func(end int) {
		if text := data[begin:end]; len(bytes.TrimSpace(text)) > 0 {
			chunks = append(chunks, chunk{line: beginLine, data: text})
		}
	}
	for at, line := 0, 1; at < len(data); line++ {
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
	cut(len(data))
	return chunks
}

// isMark tells whether a line is a mark between documents, alone or with something behind it.
func isMark(line []byte, mark string) bool {
	rest, ok := bytes.CutPrefix(line, []byte(mark))
	return ok && (len(rest) == 0 || rest[0] == ' ' || rest[0] == '\t')
}

func hasDirective(text []byte) bool {
	return bytes.HasPrefix(text, []byte("%")) || bytes.Contains(text, []byte("\n%"))
}
