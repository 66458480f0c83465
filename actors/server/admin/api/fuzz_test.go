package api

import (
	"net/url"
	"testing"
)

// What is read of a query is what is written of it again: the agent takes from a client what that meant.
func FuzzOptions(f *testing.F) {
	for _, q := range []string{"follow=true&tailLines=1&sinceTime=2026-01-01T00:00:00.5%2B01:00", "tailLines=-1", "limitBytes=9223372036854775807&uid=%00",
		"command=sh&command=-c&command=&stdin=1&tty=t", "container=a&container=b"} {
		f.Add(q)
	}
	f.Fuzz(func(t *testing.T, query string) {
		q, _ := url.ParseQuery(query) // as net/http: what can be read counts
		if o, err := ParseLogOptions(q); err == nil {
			if o.Tail != nil && *o.Tail < 0 || o.LimitBytes != nil && *o.LimitBytes < 0 {
				t.Errorf("%+v", o)
			}
			written, _ := url.ParseQuery(o.Query())
			if again, err := ParseLogOptions(written); err != nil || again.Query() != o.Query() {
				t.Errorf("%q: %+v, %+v, %v", query, o, again, err)
			}
		}
		if o, err := ParseExecOptions(q); err == nil {
			written, _ := url.ParseQuery(o.Query())
			if again, err := ParseExecOptions(written); err != nil || again.Query() != o.Query() {
				t.Errorf("%q: %+v, %+v, %v", query, o, again, err)
			}
		}
	})
}
