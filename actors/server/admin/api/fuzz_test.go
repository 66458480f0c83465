package api

import (
	"net/url"
	"testing"
)

// Decoding and encoding a query keeps its meaning: the agent accepts the options of any client.
func FuzzOptions(f *testing.F) {
	for _, q := range []string{"follow=true&tailLines=1&sinceTime=2026-01-01T00:00:00.5%2B01:00", "tailLines=-1", "limitBytes=9223372036854775807&uid=%00",
		"command=sh&command=-c&command=&stdin=1&tty=t", "container=a&container=b"} {
		f.Add(q)
	}
	f.Fuzz(func(t *testing.T, query string) {
		q, _ := url.ParseQuery(query) // like net/http: the readable part counts
		var logs, logsAgain LogOptions
		if logs.Params().Decode(q) == nil {
			if logs.Tail != nil && *logs.Tail < 0 || logs.LimitBytes != nil && *logs.LimitBytes < 0 {
				t.Errorf("%+v", logs)
			}
			text := logs.Params().Encode()
			written, _ := url.ParseQuery(text)
			if err := logsAgain.Params().Decode(written); err != nil || logsAgain.Params().Encode() != text {
				t.Errorf("%q: %+v, %+v, %v", query, logs, logsAgain, err)
			}
		}
		var exec, execAgain ExecOptions
		if exec.Params().Decode(q) == nil {
			text := exec.Params().Encode()
			written, _ := url.ParseQuery(text)
			if err := execAgain.Params().Decode(written); err != nil || execAgain.Params().Encode() != text {
				t.Errorf("%q: %+v, %+v, %v", query, exec, execAgain, err)
			}
		}
	})
}
