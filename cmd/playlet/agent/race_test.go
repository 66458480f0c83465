//go:build race

package agent

// underRace says that the race detector runs, with which everything takes several times as long.
const underRace = true
