package pod

import "github.com/playlet-dev/playlet/actors/internal/host"

// Host is what the actors of pods and containers know of the machine. It is made once, by the command.
type Host = host.Host

// Abilities are what not every runtime can do.
type Abilities = host.Abilities
