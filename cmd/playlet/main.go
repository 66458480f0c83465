// Command playlet is the node agent and its sub-commands.
package main

import (
	"os"

	"github.com/playlet-dev/playlet/cmd/playlet/cli"
)

func main() { os.Exit(cli.Main(newRoot(), os.Args[1:], os.Stdout, os.Stderr)) }
