// Package screen is a screen of lists for a terminal, without the terminal: a pure function of keys and contents. State and key
// in, state and command out; state in, lines out. Whoever has the terminal carries the commands out, and draws the lines.
package screen

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Content is the data on the screen. It is immutable once it is passed on.
type Content struct {
	Header []string
	Lists  []List
}

// List is one table with a chosen row.
type List struct {
	Name     string
	Headings []string
	Orders   []string // names of the orders; the first is the one in which the rows come
	Rows     []Row
	Open     string // the effect of Open on a row, in a word
	// Spare are columns that are left out, one after another, while the last column lacks width.
	Spare []int
	Logs  bool // Logs and Describe have a text on a row
}

// Row is one line of a list.
type Row struct {
	ID    string // stays the same while the row's cells change; one row has it in its list
	Cells []string
	Ranks []float64 // for each order but the first: the highest comes first
	Style Style     // unless the row is chosen
	// Branch replaces the first cell while all rows are shown in their first order: the row's place in a tree.
	Branch string
}

// Verb is the action of a key.
type Verb string

// The verbs. Actions within the screen have none.
const (
	None   Verb = ""
	Quit   Verb = "quit"
	Open   Verb = "open"  // a text on the row, which Show takes
	Trace  Verb = "trace" // another text on it
	Logs   Verb = "logs"
	Descr  Verb = "describe"
	Help   Verb = "help"   // the keys; nothing is asked for
	Target Verb = "target" // asks for the effect of Kill; Ask takes the question
	Kill   Verb = "kill"   // confirmed by the user
)

// Command is a verb with the row that it is about.
type Command struct {
	Verb Verb
	List string
	ID   string
}

// Keyboard is the help on the keys.
const Keyboard = `
arrows, j k, g G   choose a row
Tab                pods or actors
Enter              explain the pod, or inspect the actor
l                  the pod's last log lines, as they are written
d                  describe the pod
t                  trace the pod or the actor
s                  sort by the next column
/                  only rows with this text; Esc shows all again
K                  kill the actor, after confirmation; the agent must run with --enable-chaos
arrows left right  scroll lines that are wider than the terminal
?                  these keys
q, Ctrl-C          quit
`

// place is where one list stands.
type place struct {
	id          string // of the chosen row
	row, first  int    // the index of the chosen row, and of the first one on the screen
	order       int
	filter      string
	everChanged bool // a person has chosen the row; before, it is the first one
}

// text is shown in place of a list; it comes from a command.
type text struct {
	of     Command
	title  string
	lines  []string
	scroll int
}

// State is all that a frame is made of. Its methods return the next state, and change none.
type State struct {
	content       Content
	width, height int
	list          int
	places        []place
	typing        bool
	text          text
	question      string
	about         Command // the question is about it
	note          string
	shift         int // columns that are left out on the left
}

// Resize is the state on a terminal of that many columns and lines.
func (s State) Resize(width, height int) State {
	s.width, s.height = max(width, 1), max(height, 1)
	return s.settle()
}

// With returns the state with new contents, which must have the same lists in the same order.
func (s State) With(c Content) State {
	s.content = c
	return s.settle()
}

// Note is the state with a sentence in its last line, until a key is pressed.
func (s State) Note(note string) State {
	s.note = note
	return s
}

// Show returns the state with the text of a command, unless that command is not current any more.
func (s State) Show(c Command, title string, lines []string) State {
	if s.text.of != c || c.Verb == None {
		return s
	}
	page := max(s.height-textFrame, 1)
	end := c.Verb == Logs && s.text.scroll+page >= len(s.text.lines) // the newest lines stay in sight
	if s.text.title, s.text.lines = title, lines; end {
		s.text.scroll = len(lines)
	}
	return s.settle()
}

// Ask returns the state with a yes-or-no question; yes leads to Kill.
func (s State) Ask(c Command, question string) State {
	s.about, s.question = Command{Kill, c.List, c.ID}, question
	return s
}

// Again returns the command of the text on the screen, or None.
func (s State) Again() Command { return s.text.of }

// Key returns the state after a key, and the resulting command.
func (s State) Key(k Key) (State, Command) {
	s.note = ""
	switch {
	case k == CtrlC:
		return s, Command{Verb: Quit}
	case s.question != "":
		return s.answer(k)
	case s.typing:
		return s.typed(k), Command{}
	}
	switch k {
	case Left:
		s.shift = max(s.shift-shiftBy, 0)
		return s, Command{}
	case Right:
		s.shift += shiftBy
		return s, Command{}
	case Up, Down, PageUp, PageDown, Home, End, Enter, Tab, Esc, Backspace, CtrlC: // handled within the screen
	}
	if s.text.of.Verb != None {
		return s.textKey(k)
	}
	return s.listKey(k)
}

const shiftBy = 16

func (s State) answer(k Key) (State, Command) {
	c := s.about
	s.question, s.about = "", Command{}
	if k == "y" || k == "Y" {
		return s, c
	}
	return s.Note("nothing was done"), Command{}
}

// typed takes a key of the filter.
func (s State) typed(k Key) State {
	p := s.place()
	switch {
	case k == Enter:
		s.typing = false
	case k == Esc:
		s.typing, p.filter = false, ""
	case k == Backspace:
		_, n := utf8.DecodeLastRuneInString(p.filter)
		p.filter = p.filter[:len(p.filter)-n]
	case utf8.RuneCountInString(string(k)) == 1:
		p.filter += string(k)
	}
	return s.put(p).settle()
}

func (s State) textKey(k Key) (State, Command) {
	page := max(s.height-textFrame, 1)
	switch k {
	case Esc, "q", Enter:
		s.text, s.shift = text{}, 0
	case "t", "l", "d":
		if verb := (map[Key]Verb{"t": Trace, "l": Logs, "d": Descr})[k]; s.text.of.ID != "" && (verb == Trace || s.now().Logs) {
			return s.open(verb, s.text.of.ID)
		}
	case Up, "k":
		s.text.scroll--
	case Down, "j":
		s.text.scroll++
	case PageUp, "b":
		s.text.scroll -= page
	case PageDown, " ":
		s.text.scroll += page
	case Home, "g":
		s.text.scroll = 0
	case End, "G":
		s.text.scroll = len(s.text.lines)
	case Left, Right, Tab, Backspace, CtrlC: // mean nothing here
	}
	return s.settle(), Command{}
}

func (s State) listKey(k Key) (State, Command) {
	p, page := s.place(), max(s.body(), 1)
	move := func(to int) (State, Command) {
		rows := s.rows()
		if len(rows) > 0 {
			p.row = min(max(to, 0), len(rows)-1)
			p.id, p.everChanged = rows[p.row].ID, true
		}
		return s.put(p).settle(), Command{}
	}
	switch k {
	case "q":
		return s, Command{Verb: Quit}
	case Esc:
		p.filter = ""
	case Up, "k":
		return move(p.row - 1)
	case Down, "j":
		return move(p.row + 1)
	case PageUp:
		return move(p.row - page)
	case PageDown, " ":
		return move(p.row + page)
	case Home, "g":
		return move(0)
	case End, "G":
		return move(len(s.rows()) - 1)
	case Tab:
		s.list, s.shift = (s.list+1)%len(s.content.Lists), 0
		return s.settle(), Command{}
	case "s":
		p.order = (p.order + 1) % max(len(s.now().Orders), 1)
	case "/":
		s.typing = true
	case Enter:
		return s.open(Open, p.id)
	case Left, Right, Backspace, CtrlC: // mean nothing here
	case "t":
		return s.open(Trace, p.id)
	case "l", "d":
		if !s.now().Logs {
			return s.Note("a pod has logs and a description; Tab leads to the pods"), Command{}
		}
		return s.open(map[Key]Verb{"l": Logs, "d": Descr}[k], p.id)
	case "?":
		s.text, s.shift = text{of: Command{Verb: Help}, title: "keys", lines: strings.Split(strings.TrimSpace(Keyboard), "\n")}, 0
		return s, Command{}
	case "K":
		if p.id != "" {
			return s, Command{Target, s.now().Name, p.id}
		}
	}
	return s.put(p).settle(), Command{}
}

// open shows a text in place of the list, once it is there.
func (s State) open(v Verb, id string) (State, Command) {
	if id == "" {
		return s, Command{}
	}
	c := Command{v, s.now().Name, id}
	s.text, s.shift = text{of: c, title: "asking the agent"}, 0
	return s, c
}

func (s State) now() List {
	if s.list >= len(s.content.Lists) {
		return List{}
	}
	return s.content.Lists[s.list]
}

func (s State) place() place {
	if s.list >= len(s.places) {
		return place{}
	}
	return s.places[s.list]
}

func (s State) put(p place) State {
	s.places = slices.Clone(s.places)
	for len(s.places) <= s.list {
		s.places = append(s.places, place{})
	}
	s.places[s.list] = p
	return s
}

// rows returns the rows of the list that match the filter, in order.
func (s State) rows() []Row {
	p, rows := s.place(), s.now().Rows
	if p.filter != "" {
		want := strings.ToLower(p.filter)
		rows = slices.DeleteFunc(slices.Clone(rows), func(r Row) bool {
			return !slices.ContainsFunc(r.Cells, func(c string) bool { return strings.Contains(strings.ToLower(c), want) })
		})
	}
	if p.order > 0 {
		rank := func(r Row) float64 {
			if p.order > len(r.Ranks) {
				return 0
			}
			return r.Ranks[p.order-1]
		}
		rows = slices.Clone(rows)
		slices.SortStableFunc(rows, func(x, y Row) int { return cmp.Compare(rank(y), rank(x)) })
	}
	return rows
}

// settle keeps the chosen row on the screen after a change. The choice follows its row; if that is removed, the row in its place
// is chosen.
func (s State) settle() State {
	s.text.scroll = max(min(s.text.scroll, len(s.text.lines)-max(s.height-textFrame, 1)), 0)
	p, rows := s.place(), s.rows()
	if at := slices.IndexFunc(rows, func(r Row) bool { return r.ID == p.id }); p.everChanged && at >= 0 {
		p.row = at
	} else {
		p.row = max(min(p.row, len(rows)-1), 0)
	}
	p.id = ""
	if p.row < len(rows) {
		p.id = rows[p.row].ID
	}
	body := max(s.body(), 1)
	p.first = max(min(p.first, p.row, len(rows)-body), p.row-body+1, 0)
	return s.put(p)
}
