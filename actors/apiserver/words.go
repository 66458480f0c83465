package apiserver

import (
	"fmt"
	"time"
)

// problemText is the whole sentence about what keeps the pods of this node from being known.
func problemText(what string, since time.Time) string {
	return fmt.Sprintf("since %s the pods of this node cannot be read: %s", since.UTC().Format(time.RFC3339), what)
}
