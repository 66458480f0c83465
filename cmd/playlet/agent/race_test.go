//go:build race

package agent

// underRace reports that the race detector is enabled, which makes everything several times slower.
const underRace = true
