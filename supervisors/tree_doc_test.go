package supervisors

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/messages"
)

// treeProblems checks the claims of a table as a reader would take them.
func treeProblems(tree *Row) []string {
	var out []string
	kinds := map[Kind]string{}
	tree.Walk(func(path string, row *Row) {
		say := func(format string, args ...any) { out = append(out, path+": "+fmt.Sprintf(format, args...)) }
		if row.Kind == "" {
			say("no kind")
		}
		if other, ok := kinds[row.Kind]; ok {
			say("%s is of this kind too", other)
		}
		kinds[row.Kind] = path
		if strings.TrimSpace(row.Why) == "" {
			say("no why")
		}
		if s := row.Strategy; s.Panics <= 0 || s.Within <= 0 || s.Then != Escalate && s.Then != Quarantine {
			say("no strategy: %+v", s)
		}
		for i, c := range row.Children {
			if c.Dynamic && i != len(row.Children)-1 && !row.Children[i+1].Dynamic {
				say("the rows after %s cannot be told from it by name", c.Kind)
			}
		}
		if row.Dynamic && row.Clients != nil {
			say("it has clients, and only services are announced")
		}
		for _, client := range row.Clients {
			if !isSingleton(tree, client) {
				say("its client %s has no row", client)
			}
		}
	})
	return out
}

// isSingleton reports whether an address belongs to an actor that exists once.
func isSingleton(tree *Row, a messages.Address) bool {
	row := tree
	for _, name := range strings.Split(string(a), "/") {
		if row = row.child(name); row == nil || row.Dynamic {
			return false
		}
	}
	return true
}

func TestTheTreeSaysAllOfEveryRow(t *testing.T) {
	for _, p := range treeProblems(&Tree) {
		t.Error(p)
	}
}

func TestTreeProblemsAreFound(t *testing.T) {
	whole := func() *Row {
		some := Strategy{Panics: 1, Within: time.Second, Then: Escalate}
		return &Row{Kind: "node", Why: "root", Strategy: some, Children: []Row{
			{Kind: "a", Why: "a", Strategy: some, Clients: []messages.Address{"b"}},
			{Kind: "b", Why: "b", Strategy: some, Children: []Row{{Kind: "c", Dynamic: true, Why: "c", Strategy: some}}},
		}}
	}
	for _, test := range []struct {
		name  string
		spoil func(*Row)
		want  []string
	}{
		{"nothing is wrong", func(*Row) {}, nil},
		{"a kind twice", func(r *Row) { r.Children[1].Children[0].Kind = "a" }, []string{"b/a: a is of this kind too"}},
		{"no kind", func(r *Row) { r.Children[1].Children[0].Kind = "" }, []string{"b/: no kind"}},
		{"no why", func(r *Row) { r.Children[0].Why = " " }, []string{"a: no why"}},
		{"no outcome", func(r *Row) { r.Children[0].Strategy.Then = "" }, []string{"a: no strategy: {Panics:1 Within:1s Then:}"}},
		{"no panic is allowed for", func(r *Row) { r.Strategy.Panics = 0 },
			[]string{"node: no strategy: {Panics:0 Within:1s Then:escalate}"}},
		{"a client that is nowhere", func(r *Row) { r.Children[0].Clients[0] = "x" }, []string{"a: its client x has no row"}},
		{"a client that comes and goes", func(r *Row) { r.Children[0].Clients[0] = "b/c" },
			[]string{"a: its client b/c has no row"}},
		{"a dynamic row with clients", func(r *Row) {
			r.Children[1].Children[0].Clients = []messages.Address{"a"}
		}, []string{"b/c: it has clients, and only services are announced"}},
		{"a row behind a dynamic one", func(r *Row) {
			r.Children[0].Dynamic, r.Children[0].Clients = true, nil
		}, []string{"node: the rows after a cannot be told from it by name"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			tree := whole()
			test.spoil(tree)
			if got := treeProblems(tree); !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
