//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/playlet-dev/playlet/e2e/stack"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "tool" {
		os.Exit(tool(os.Args[2:]))
	}
	if filepath.Base(os.Args[0]) == "tar" { // kubectl cp asks for it in a container
		os.Exit(verdict(tarTool(os.Args[1:])))
	}
	if os.Getenv(swapVar) != "" { // this is the hostile container of TestSwappedSubPaths
		os.Exit(swapForEver())
	}
	os.Exit(stack.Main(m.Run))
}

// overBoth runs a test over each runtime, with a stack of its own.
func overBoth(t *testing.T, test func(t *testing.T, s *stack.Stack)) {
	for _, runtime := range stack.Runtimes {
		t.Run(string(runtime), func(t *testing.T) {
			test(t, stack.Start(t, stack.Options{Runtime: runtime}))
		})
	}
}
