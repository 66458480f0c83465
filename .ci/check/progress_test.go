package main

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

func TestProgressBreaksTheSilence(t *testing.T) {
	read, write := io.Pipe()
	p := watchProgress(write, "a long step", time.Millisecond)
	sent := make([]byte, 256)
	for range 2 { // it is repeated
		n, err := read.Read(sent)
		if got := string(sent[:n]); err != nil || !strings.HasPrefix(got, "... a long step: still running, ") {
			t.Fatalf("%q, %v", got, err)
		}
	}
	go func() { _, _ = io.Copy(io.Discard, read) }() // a write in progress
	p.stop()
	var after strings.Builder
	p.to = &after
	fmt.Fprint(p, "last words")
	p.silent() // the timer may have fired already
	if after.String() != "last words" {
		t.Errorf("after its end the step writes %q", after.String())
	}
}
