package pods

import "github.com/playlet-dev/playlet/actors/internal/board"

// Board is where the pods actor publishes; the server reads it.
type Board = board.Board

// Snapshot is what is published: all that the pods actor knows at one time. Immutable.
type Snapshot = board.Snapshot

// Published is one pod of a Snapshot. Immutable.
type Published = board.Pod

// NewBoard is an empty board.
func NewBoard() *Board { return board.New() }
