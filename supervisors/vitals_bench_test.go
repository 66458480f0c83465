package supervisors

import (
	"context"
	"testing"
)

// BenchmarkMessage is one message from outside to an actor that does nothing with it.
func BenchmarkMessage(b *testing.B) {
	got := make(chan struct{})
	want := 0
	root := &probe{func(_ Context, msg any) {
		if _, ok := msg.(ping); ok {
			if want--; want == 0 {
				got <- struct{}{}
			}
		}
	}}
	s, err := Start(Options{Tree: &Row{Kind: "node", Strategy: lenient},
		Constructors: map[Kind]Constructor{"node": func(string) Actor { return root }}})
	if err != nil {
		b.Fatal(err)
	}
	want = b.N
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		s.Tell("", ping{})
	}
	<-got
	b.StopTimer()
	if err := s.Shutdown(context.Background()); err != nil {
		b.Fatal(err)
	}
}
