package config

import "fmt"

// Warning says to an operator that something was accepted but should be said differently. Load returns warnings as values;
// the command logs them.
type Warning struct {
	// Flag is the flag with its dashes ("--network-plugin"), or the path of a configuration field
	// ("featureGates.DynamicKubeletConfig").
	Flag string
	// Message says on one line what was done and what replaces the flag.
	Message string
}

// String renders the warning on one line.
func (w Warning) String() string { return fmt.Sprintf("%s: %s", w.Flag, w.Message) }
