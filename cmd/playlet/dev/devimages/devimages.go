// Package devimages holds two small images of the project's own and a registry inside the process to pull them
// from, so that a pod can be run with no network: by `playlet dev`, by the end-to-end tests and by the benchmarks.
//
//   - pause holds a pod's namespaces. It waits, reaps orphans, and ends at once on TERM or INT.
//   - hello answers HTTP with a greeting, and is a box of small behaviours for tests (src/hello.c lists them).
//
// Both are written in C without a C library and come to a few kilobytes an architecture. The compiled programs are
// part of the source tree, so that a plain `go build` has them; `go generate` compiles them again, which needs gcc
// and, for the other architecture, its cross compiler (Debian: gcc-aarch64-linux-gnu or gcc-x86-64-linux-gnu).
//
// The package imports nothing else of the project.
package devimages

import (
	"embed"
	"fmt"
)

//go:generate sh src/build.sh elf amd64 arm64

//go:embed elf/pause-amd64 elf/pause-arm64 elf/hello-amd64 elf/hello-arm64
var programs embed.FS

// Program names one of the two programs, and the image made of it.
type Program string

// The programs there are.
const (
	Pause Program = "pause"
	Hello Program = "hello"
)

// Architectures are those the programs are compiled for, in Go's names, the OS being Linux.
var Architectures = []string{"amd64", "arm64"}

// Binary gives the compiled program, a static ELF executable, for an architecture of Architectures. The slice is the
// caller's. The error names a program or an architecture that does not exist.
func Binary(program Program, arch string) ([]byte, error) {
	elf, err := programs.ReadFile("elf/" + string(program) + "-" + arch)
	if err != nil {
		return nil, fmt.Errorf("no program %q for linux/%s", program, arch)
	}
	return elf, nil
}
