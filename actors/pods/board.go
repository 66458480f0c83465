package pods

import "github.com/playlet-dev/playlet/actors/internal/board"

// Board is where the pods actor publishes; the server reads it.
type Board = board.Board

// NewBoard is an empty board.
func NewBoard() *Board { return board.New() }
