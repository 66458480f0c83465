package supervisors_test

import (
	"context"
	"fmt"

	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// Greet asks for a greeting.
type Greet struct{ Name string }

// greeter counts its greetings. No lock is needed: one message is handled at a time.
type greeter struct {
	greeted int
	out     chan string
}

func (g *greeter) Receive(_ supervisors.Context, msg any) {
	if m, ok := msg.(Greet); ok {
		g.greeted++
		g.out <- fmt.Sprintf("hello %s, you are number %d", m.Name, g.greeted)
	}
}

func Example() {
	out := make(chan string, 2)
	system, err := supervisors.Start(supervisors.Options{
		Tree: &supervisors.Row{Kind: "node", Strategy: supervisors.Strategy{Panics: 3}},
		Constructors: map[supervisors.Kind]supervisors.Constructor{
			"node": func(string) supervisors.Actor { return &greeter{out: out} },
		},
	})
	if err != nil {
		panic(err)
	}
	system.Tell(messages.Node, Greet{Name: "web"})
	system.Tell(messages.Node, Greet{Name: "db"})
	fmt.Println(<-out)
	fmt.Println(<-out)
	if err := system.Shutdown(context.Background()); err != nil {
		panic(err)
	}
	// Output:
	// hello web, you are number 1
	// hello db, you are number 2
}
