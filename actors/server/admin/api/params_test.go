package api

import (
	"net/url"
	"testing"
)

func TestNumbers(t *testing.T) {
	for text, c := range map[string]struct{ ok, given bool }{
		"grace=": {true, false}, "": {true, false}, "grace=0": {true, true}, "grace=-1": {}, "grace=x": {},
	} {
		q, err := url.ParseQuery(text)
		if err != nil {
			t.Fatal(err)
		}
		var grace *int64
		if err := (Params{"grace": &grace}).Decode(q); (err == nil) != c.ok || c.ok && (grace != nil) != c.given {
			t.Errorf("%q: %v, %v", text, grace, err)
		}
	}
}
