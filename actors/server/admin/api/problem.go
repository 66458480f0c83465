package api

import (
	"github.com/playlet-dev/playlet/actors/internal/explain"
	"github.com/playlet-dev/playlet/messages"
)

// ProblemText is one line on a manifest problem: path:line: field: message.
func ProblemText(p messages.ManifestProblem) string { return explain.ProblemText(p) }
