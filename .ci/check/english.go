package main

import (
	"cmp"
	"context"
	"fmt"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// sharesFile records the highest share of listed words that each unfinished room may have.
const sharesFile = ".ci/check/english.txt"

// finishedShare is the limit, in percent, of every room that sharesFile does not name.
const finishedShare = 3

// listed matches the constructions that CONTRIBUTING.md asks to avoid in comments.
var listed = regexp.MustCompile(`(?i)\b(what|who|whose|somebody|nobody|of which|upon which|tells?|told|says?|said|that of|` +
	`those of|anew|under way|in vain|hears?|heard|wants?|wanted|lets? go)\b`)

// commentCount counts the comment lines of a room, and those that match listed.
type commentCount struct{ lines, matches int }

// percent returns the share of matching lines.
func (c commentCount) percent() float64 { return 100 * float64(c.matches) / float64(max(c.lines, 1)) }

// limit returns the share rounded up: the lowest limit that the room keeps.
func (c commentCount) limit() int { return max(finishedShare, int(math.Ceil(c.percent()))) }

// plainEnglish prints the share of listed words per room, and the recorded limits that can be lowered. It fails when a room
// exceeds its limit.
func plainEnglish(_ context.Context, out io.Writer) (tally, error) {
	rooms, err := countComments(".")
	if err != nil {
		return tally{}, err
	}
	text, err := os.ReadFile(sharesFile)
	if err != nil {
		return tally{}, err
	}
	limits, err := parseShares(string(text))
	if err != nil {
		return tally{}, err
	}
	var total commentCount
	for _, room := range slices.Sorted(maps.Keys(rooms)) {
		c := rooms[room]
		fmt.Fprintf(out, "%-30s %6d comment lines, %5d listed, %5.1f %%, limit %d %%\n", room, c.lines, c.matches, c.percent(),
			cmp.Or(limits[room], finishedShare))
		total.lines, total.matches = total.lines+c.lines, total.matches+c.matches
	}
	fmt.Fprintf(out, "%-30s %6d comment lines, %5d listed, %5.1f %%\n", "all", total.lines, total.matches, total.percent())
	problems, notes := compareShares(rooms, limits)
	for _, note := range notes {
		fmt.Fprintln(out, note)
	}
	if len(problems) > 0 {
		return tally{}, fmt.Errorf("plain English (CONTRIBUTING.md):\n\t%s", strings.Join(problems, "\n\t"))
	}
	return tally{passed: 1}, nil
}

// compareShares returns a problem for each room that exceeds its limit, and a note for each limit that can be lowered.
func compareShares(rooms map[string]commentCount, limits map[string]int) (problems, notes []string) {
	for _, room := range slices.Sorted(maps.Keys(rooms)) {
		limit := cmp.Or(limits[room], finishedShare)
		if c := rooms[room]; c.percent() > float64(limit) {
			problems = append(problems, fmt.Sprintf("%s: %.1f %% of the comment lines match the list, the limit is %d %%", room,
				c.percent(), limit))
		}
	}
	for _, room := range slices.Sorted(maps.Keys(limits)) {
		c, ok := rooms[room]
		switch {
		case !ok:
			problems = append(problems, fmt.Sprintf("%s: remove its limit from %s, the room does not exist", room, sharesFile))
		case limits[room] > c.limit():
			notes = append(notes, fmt.Sprintf("%s: lower its limit in %s to %d %%", room, sharesFile, c.limit()))
		}
	}
	return problems, notes
}

// parseShares reads lines of a room and its limit in percent.
func parseShares(text string) (map[string]int, error) {
	limits := map[string]int{}
	for line := range strings.Lines(text) {
		var room string
		var limit int
		if _, err := fmt.Sscanf(line, "%s %d", &room, &limit); err != nil {
			return nil, fmt.Errorf("%s: line %q: %w", sharesFile, line, err)
		}
		limits[room] = limit
	}
	return limits, nil
}

// formatShares writes the limits of the unfinished rooms. A recorded limit is lowered or kept, never raised.
func formatShares(rooms map[string]commentCount, recorded map[string]int) string {
	var b strings.Builder
	for _, room := range slices.Sorted(maps.Keys(rooms)) {
		limit := rooms[room].limit()
		if recorded != nil {
			limit = min(limit, cmp.Or(recorded[room], finishedShare))
		}
		if limit > finishedShare {
			fmt.Fprintf(&b, "%s %d\n", room, limit)
		}
	}
	return b.String()
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
