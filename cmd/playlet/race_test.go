//go:build race

package main

// underRace says that the race detector runs, with which everything takes several times as long.
const underRace = true
