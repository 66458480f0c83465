package screen

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// pods is a content of two lists.
func pods(rows ...Row) Content {
	return Content{Header: []string{"node1", "pods 3"}, Lists: []List{
		{Name: "pods", Headings: []string{"NAME", "CPU", "CAUSE"}, Orders: []string{"name", "CPU"}, Rows: rows, Open: "explain", Logs: true},
		{Name: "actors", Headings: []string{"PATH"}, Orders: []string{"path"}, Rows: []Row{{ID: "node", Cells: []string{"node"}}}, Open: "inspect"},
	}}
}

func row(name string, cpu int, cause string) Row {
	r := Row{ID: name, Cells: []string{name, fmt.Sprint(cpu), cause}, Ranks: []float64{float64(cpu)}}
	if cause != "" {
		r.Style = Red
	}
	return r
}

func three() Content { return pods(row("a", 1, ""), row("bob", 30, "no such image"), row("c", 2, "")) }

// look returns a frame as text, with a mark on the chosen row.
func look(s State) string {
	var out []string
	for _, l := range s.Frame() {
		mark := ""
		if l.Style == Reverse {
			mark = ">"
		}
		out = append(out, mark+l.Text)
	}
	return strings.Join(out, "\n")
}

func TestAFrame(t *testing.T) {
	got := look(State{}.Resize(78, 8).With(three()))
	want := `node1
pods 3
[pods (3)]  actors (1)    by name
NAME  CPU  CAUSE
>a     1    
bob   30   no such image
c     2    
? keys  Tab actors  Enter explain  l logs  d describe  t trace  s sort  / fil…`
	if got != want {
		t.Errorf("\n%s\nwant\n%s", got, want)
	}
}

// Spare columns make room for the last one, the trouble is red, and a tree is drawn while nothing is sorted or left out.
func TestAFrameHasRoomForTheCause(t *testing.T) {
	c := three()
	c.Lists[0].Spare = []int{1}
	c.Lists[0].Rows[1].Branch = "└─ bob"
	for width, want := range map[int]string{
		25: "NAME    CAUSE\n>a       \n└─ bob  no such image\nc       ",
		26: "NAME    CPU  CAUSE\n>a       1    \n└─ bob  30   no such image\nc       2    ",
	} {
		s := State{}.Resize(width, 8).With(c)
		if got := strings.Join(strings.Split(look(s), "\n")[3:7], "\n"); got != want {
			t.Errorf("%d columns:\n%q\nwant\n%q", width, got, want)
		}
		if style := s.Frame()[5].Style; style != Red {
			t.Errorf("bob has style %q", style)
		}
		sorted, _ := s.Key("s")
		filtered, _ := s.Key("/")
		filtered, _ = filtered.Key("b")
		for _, s := range []State{sorted, filtered} {
			if strings.Contains(look(s), "└─") {
				t.Errorf("a branch is drawn where rows of the tree are missing or sorted:\n%s", look(s))
			}
		}
	}
}

// The newest lines of a log stay in sight, unless a person has scrolled back.
func TestALogIsFollowed(t *testing.T) {
	s, c := State{}.Resize(20, 5).With(three()).Key("l")
	s = s.Show(c, "logs of a", []string{"1", "2", "3", "4"})
	if got := look(s); !strings.HasPrefix(got, "logs of a\n2\n3\n4\n") {
		t.Errorf("the log begins as\n%s", got)
	}
	if got := look(s.Show(c, "logs of a", []string{"1", "2", "3", "4", "5"})); !strings.Contains(got, "\n4\n5\n") {
		t.Errorf("the new line is not in sight:\n%s", got)
	}
	s, _ = s.Key("k")
	if got := look(s.Show(c, "logs of a", []string{"1", "2", "3", "4", "5"})); !strings.Contains(got, "\n1\n2\n3\n") {
		t.Errorf("the screen has moved:\n%s", got)
	}
}

// Keys choose rows, show texts and return commands.
func TestKeys(t *testing.T) {
	for _, one := range []struct {
		keys    string // names of keys, with spaces between
		chosen  string // the marked line begins so
		command Command
		shows   string // something that the frame has
	}{
		{"", "a ", Command{}, "[pods (3)]"},
		{"j", "bob", Command{}, ""},
		{"down down down", "c ", Command{}, ""},
		{"G", "c ", Command{}, ""},
		{"end k", "bob", Command{}, ""},
		{"G g", "a ", Command{}, ""},
		{"up", "a ", Command{}, ""},
		{"page-down page-up", "a ", Command{}, ""},
		{"s", "bob", Command{}, "by CPU"},
		{"j s", "bob", Command{}, ""},   // the choice stays
		{"j s s", "bob", Command{}, ""}, // and where it was
		{"tab", "node", Command{}, "[actors (1)]"},
		{"j tab tab", "bob", Command{}, ""},
		{"/ B O", "bob", Command{}, "/BO_"},
		{"/ B O backspace backspace enter", "a ", Command{}, "[pods (3)]"},
		{"/ i m a enter", "bob", Command{}, `only "ima"`},
		{"/ i m a enter esc", "a ", Command{}, "[pods (3)]"},
		{"/ z", "", Command{}, "[pods (0)]"},
		{"/ z esc", "a ", Command{}, "[pods (3)]"},
		{"/ z enter enter", "", Command{}, "[pods (0)]"}, // there is nothing to open
		{"/ z enter K", "", Command{}, ""},
		{"/ q", "", Command{}, "/q_"},
		{"j enter", "", Command{Open, "pods", "bob"}, "asking the agent"},
		{"j t", "", Command{Trace, "pods", "bob"}, "asking the agent"},
		{"j enter t", "", Command{Trace, "pods", "bob"}, ""},
		{"j enter q", "bob", Command{}, ""},
		{"j l", "", Command{Logs, "pods", "bob"}, "asking the agent"},
		{"j d", "", Command{Descr, "pods", "bob"}, "asking the agent"},
		{"j enter l", "", Command{Logs, "pods", "bob"}, ""},
		{"tab l", "node", Command{}, "a pod has logs and a description; Tab leads to the pods"},
		{"?", "", Command{}, "describe the pod"},
		{"? l", "", Command{}, "describe the pod"},
		{"? esc", "a ", Command{}, ""},
		{"tab enter esc tab", "a ", Command{}, ""},
		{"j K", "bob", Command{Target, "pods", "bob"}, ""},
		{"right", "", Command{}, "h image"},
		{"right left", "a ", Command{}, "CAUSE"},
		{"q", "a ", Command{Verb: Quit}, ""},
		{"/ ctrl-c", "", Command{Verb: Quit}, ""},
		{"enter ctrl-c", "", Command{Verb: Quit}, ""},
	} {
		s, c := State{}.Resize(60, 9).With(three()), Command{}
		for _, k := range strings.Fields(one.keys) {
			s, c = s.Key(Key(strings.ReplaceAll(k, "-d", " d")).named())
		}
		shown := look(s)
		chosen := ""
		if _, after, ok := strings.Cut(shown, ">"); ok {
			chosen = after
		}
		if c != one.command || !strings.HasPrefix(chosen, one.chosen) || !strings.Contains(shown, one.shows) {
			t.Errorf("%q: %+v, %q\n%s", one.keys, c, chosen, shown)
		}
	}
}

// named is a key by a name without spaces.
func (k Key) named() Key {
	if k == "page-up" {
		return PageUp
	}
	return k
}

// The choice follows its row while rows are added and removed. Without a choice the first row is shown.
func TestTheChosenRowStays(t *testing.T) {
	s := State{}.Resize(60, 9).With(three())
	if s = s.With(pods(row("0", 0, ""), row("a", 1, ""))); !strings.Contains(look(s), ">0 ") {
		t.Errorf("at the begin:\n%s", look(s))
	}
	s, _ = s.With(three()).Key("j")
	if s = s.With(pods(row("a", 1, ""), row("a2", 1, ""), row("bob", 30, ""), row("c", 2, ""))); !strings.Contains(look(s), ">bob") {
		t.Errorf("after one has come:\n%s", look(s))
	}
	if s = s.With(pods(row("a", 1, ""), row("a2", 1, ""), row("c", 2, ""))); !strings.Contains(look(s), ">c ") {
		t.Errorf("after it has gone:\n%s", look(s))
	}
	if s = s.With(pods()); strings.Contains(look(s), ">") {
		t.Errorf("without rows:\n%s", look(s))
	}
	if _, c := s.Key(Enter); c != (Command{}) {
		t.Errorf("opened %+v", c)
	}
}

// Long lists scroll with the choice, and no frame exceeds the terminal, whatever its size.
func TestSizes(t *testing.T) {
	var rows []Row
	for i := range 1000 {
		rows = append(rows, row(fmt.Sprintf("pod%03d", i), i, strings.Repeat("w", 300)))
	}
	for _, size := range [][2]int{{1, 1}, {1, 2}, {3, 3}, {20, 4}, {20, 5}, {80, 24}, {300, 60}} {
		s := State{}.Resize(size[0], size[1]).With(pods(rows...))
		for _, k := range []Key{"", "G", PageUp, "k", Enter, Down, End, Esc, "g", Tab, Tab, "/", "p", Enter} {
			s, _ = s.Key(k)
			s = s.Show(s.Again(), "a text", []string{strings.Repeat("x", 400), "2", "3"})
			frame := s.Frame()
			if len(frame) != size[1] || slices.ContainsFunc(frame, func(l Line) bool { return len([]rune(l.Text)) > size[0] }) {
				t.Fatalf("%v after %q: %d lines\n%s", size, k, len(frame), look(s))
			}
		}
		s, _ = s.Key("G")
		if size[1] > 5 && size[0] > 20 && !strings.Contains(look(s), ">pod999") {
			t.Errorf("%v: the last one is not shown:\n%s", size, look(s))
		}
		if s = s.Resize(80, 9); !strings.Contains(look(s), ">pod999") {
			t.Errorf("%v: after it became smaller, the chosen one is not shown:\n%s", size, look(s))
		}
	}
}

func TestTexts(t *testing.T) {
	s := State{}.Resize(30, 5).With(three())
	s, c := s.Key(Enter)
	if s.Again() != c {
		t.Errorf("%+v is asked for again", s.Again())
	}
	lines := []string{"one", "two", "three", "four", "five"}
	s = s.Show(Command{Trace, "pods", "a"}, "another", []string{"of another"}).Show(c, "explain pod a", lines)
	if got := look(s); !strings.HasPrefix(got, "explain pod a\none\ntwo\nthree\n") {
		t.Errorf("\n%s", got)
	}
	for keys, first := range map[string]string{"j": "two", "G": "three", "G k": "two", "G g": "one", "k": "one", "j j j j": "three"} {
		u := s
		for _, k := range strings.Fields(keys) {
			u, _ = u.Key(Key(k))
		}
		if got := strings.Split(look(u), "\n")[1]; got != first {
			t.Errorf("%s: %q", keys, got)
		}
	}
	s, _ = s.Key("G")
	if got := strings.Split(look(s.Show(c, "", lines[:2])), "\n")[1]; got != "one" { // it became shorter
		t.Errorf("%q", got)
	}
	s, _ = s.Key(Esc)
	if s = s.Show(c, "late", lines); strings.Contains(look(s), "late") || s.Again() != (Command{}) {
		t.Errorf("a text that nobody wants any more:\n%s", look(s))
	}
}

// Nothing is killed but after a yes.
func TestAKillIsAskedFor(t *testing.T) {
	s := State{}.Resize(60, 9).With(three()).Ask(Command{Target, "pods", "a"}, "Kill a?")
	if got := look(s); !strings.HasSuffix(got, "Kill a? (y/n)") {
		t.Errorf("\n%s", got)
	}
	for k, want := range map[Key]Command{"y": {Kill, "pods", "a"}, "n": {}, Enter: {}, Esc: {}, "K": {}, CtrlC: {Verb: Quit}} {
		after, c := s.Key(k)
		if c != want {
			t.Errorf("%s: %+v", k, c)
		}
		if k == "n" && !strings.HasSuffix(look(after), "nothing was done") {
			t.Errorf("%s:\n%s", k, look(after))
		}
		if _, c := after.Key("y"); c != (Command{}) && k != CtrlC {
			t.Errorf("%s, and then y: %+v", k, c)
		}
	}
}

// No operation changes an earlier state.
func TestStatesAreValues(t *testing.T) {
	s, _ := State{}.Resize(60, 9).With(three()).Key("j")
	before := look(s)
	for _, k := range []Key{"j", Tab, "s", "/", "x", Enter, "t"} {
		s.Key(k)
	}
	s.With(pods()).Key("G")
	if got := look(s); got != before {
		t.Errorf("\n%s\nwas\n%s", got, before)
	}
}

func TestKeysOfATerminal(t *testing.T) {
	for sent, want := range map[string][]Key{
		"":                     nil,
		"jK":                   {"j", "K"},
		"\x1b":                 {Esc},
		"\x1b\x1b[A":           {Esc, Up},
		"\x1b[A\x1bOB\x1b[6~q": {Up, Down, PageDown, "q"},
		"\r\n\t\x7f\x08\x03":   {Enter, Enter, Tab, Backspace, Backspace, CtrlC},
		"\x1b[1;5Ax\x1b[200~":  {"x"}, // none of ours
		"\x1bj":                nil,   // with Alt
		"\x1b[12":              nil,   // cut off
		"ü\xff\x00\x01/":       {"ü", "/"},
	} {
		if got := Keys([]byte(sent)); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", sent, got, want)
		}
	}
}

func FuzzKeysAndFrames(f *testing.F) {
	f.Add([]byte("jjs/web\r\x1b[B\tK"), 80, 24)
	f.Add([]byte("\r 00"), 178, -18)
	f.Fuzz(func(t *testing.T, sent []byte, width, height int) {
		s := State{}.Resize(width%500, height%200).With(three())
		for _, k := range Keys(sent) {
			s, _ = s.Key(k)
			if got, want := len(s.Frame()), max(height%200, 1); got != want {
				t.Fatalf("%d lines of %d", got, want)
			}
		}
		Draw(s.Frame())
	})
}
