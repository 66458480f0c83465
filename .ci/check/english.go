package main

import (
	"context"
	"fmt"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// listedLimit is the share of matching comment lines, in percent, that no room may exceed.
const listedLimit = 3

// listed matches the constructions that CONTRIBUTING.md asks to avoid in comments.
var listed = regexp.MustCompile(`(?i)\b(what|who|whose|somebody|nobody|of which|upon which|tells?|told|says?|said|that of|` +
	`those of|anew|under way|in vain|hears?|heard|wants?|wanted|lets? go)\b`)

// commentCount counts the comment lines of a room, and those that match listed.
type commentCount struct{ lines, matches int }

// percent returns the share of matching lines.
func (c commentCount) percent() float64 { return 100 * float64(c.matches) / float64(max(c.lines, 1)) }

// plainEnglish prints the share of listed words per room. It fails when a room exceeds listedLimit.
func plainEnglish(_ context.Context, out io.Writer) (tally, error) {
	rooms, err := countComments(".")
	if err != nil {
		return tally{}, err
	}
	var total commentCount
	for _, room := range slices.Sorted(maps.Keys(rooms)) {
		c := rooms[room]
		c.print(out, room)
		total.lines, total.matches = total.lines+c.lines, total.matches+c.matches
	}
	total.print(out, "all")
	if problems := overLimit(rooms); len(problems) > 0 {
		return tally{}, fmt.Errorf("plain English (CONTRIBUTING.md):\n\t%s", strings.Join(problems, "\n\t"))
	}
	return tally{passed: 1}, nil
}

func (c commentCount) print(out io.Writer, room string) {
	fmt.Fprintf(out, "%-30s %6d comment lines, %5d listed, %5.1f %%\n", room, c.lines, c.matches, c.percent())
}

// overLimit returns a problem for each room that exceeds listedLimit.
func overLimit(rooms map[string]commentCount) []string {
	var problems []string
	for _, room := range slices.Sorted(maps.Keys(rooms)) {
		if c := rooms[room]; c.percent() > listedLimit {
			problems = append(problems, fmt.Sprintf("%s: %d of %d comment lines (%.1f %%) match the list, the limit is %d %%",
				room, c.matches, c.lines, c.percent(), listedLimit))
		}
	}
	return problems
}

// countComments counts the comment lines of at least three words in the Go files below dir, tests included, per room.
func countComments(dir string) (map[string]commentCount, error) {
	rooms := map[string]commentCount{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if err == nil && d.Name() == ".git" {
				return filepath.SkipDir
			}
			return err
		}
		if filepath.Ext(path) != ".go" {
			return nil
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		room := roomOf(filepath.ToSlash(rel))
		c := rooms[room]
		for _, group := range file.Comments {
			for _, comment := range group.List {
				for line := range strings.Lines(comment.Text) {
					c.add(line)
				}
			}
		}
		rooms[room] = c
		return nil
	})
	return rooms, err
}

// add counts one line of a comment. Directives and lines under three words do not count.
func (c *commentCount) add(line string) {
	text := strings.TrimPrefix(line, "//")
	if strings.HasPrefix(text, "go:") || strings.HasPrefix(text, "nolint") || len(strings.Fields(text)) < 3 {
		return
	}
	c.lines++
	if listed.MatchString(text) {
		c.matches++
	}
}

// roomOf returns the top-level folder of a file; below actors and actors/internal, the folder there.
func roomOf(path string) string {
	parts := strings.Split(path, "/")
	depth := 1
	if parts[0] == "actors" {
		depth = 2
		if len(parts) > 2 && parts[1] == "internal" {
			depth = 3
		}
	}
	return strings.Join(parts[:min(depth, len(parts)-1)], "/")
}
