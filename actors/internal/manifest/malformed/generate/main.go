// Command generate writes malformed manifests into a folder, for tests of the whole agent, which cannot import the corpus:
//
//	go run ./actors/internal/manifest/malformed/generate -n 500 -seed 7 FOLDER
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/playlet-dev/playlet/actors/internal/manifest/malformed"
)

func main() {
	n := flag.Int("n", 500, "`number` of manifests")
	seed := flag.Uint64("seed", 1, "`seed` of the changes to the manifests made by hand")
	flag.Parse()
	if err := generate(flag.Args(), *n, *seed); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func generate(args []string, n int, seed uint64) error {
	if len(args) != 1 || n < 0 {
		return errors.New("it takes one folder, and a number that is not negative")
	}
	for name, data := range malformed.Corpus(n, seed) {
		if err := os.WriteFile(filepath.Join(args[0], name), data, 0o600); err != nil {
			return err
		}
	}
	return nil
}
