package main

import (
	"strings"
	"testing"
)

// The outputs are abridged outputs of go test -json.
func TestReaderCountsAndShows(t *testing.T) {
	for _, test := range []struct {
		name, in string
		want     tally
		shown    []string
		hidden   []string
	}{
		{
			name: "subtests count, and what passed is silent",
			in: `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA/x","Output":"chatter\n"}
{"Action":"pass","Package":"p","Test":"TestA/x","Elapsed":0}
{"Action":"pass","Package":"p","Test":"TestA","Elapsed":0}
{"Action":"output","Package":"p","Output":"PASS\n"}
{"Action":"output","Package":"p","Output":"ok  \tp\t0.1s\n"}
{"Action":"pass","Package":"p","Elapsed":0.1}
`,
			want: tally{passed: 2}, shown: []string{"ok  \tp\t0.1s"}, hidden: []string{"chatter", "PASS"},
		},
		{
			name: "a failure shows what it said, and its package is not counted again",
			in: `{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:1: wrong\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"        chatter\n"}
{"Action":"fail","Package":"p","Test":"TestA","Elapsed":0}
{"Action":"output","Package":"p","Output":"FAIL\tp\t0.1s\n"}
{"Action":"fail","Package":"p","Elapsed":0.1}
`,
			want:  tally{failed: 1, failures: []string{"p TestA\n    a_test.go:1: wrong"}},
			shown: []string{"a_test.go:1: wrong", "chatter", "FAIL\tp"},
		},
		{
			name: "a leak that TestMain finds fails the package",
			in: `{"Action":"pass","Package":"p","Test":"TestA","Elapsed":0}
{"Action":"output","Package":"p","Output":"goleak: Errors on successful test run\n"}
{"Action":"output","Package":"p","Output":"FAIL\tp\t0.1s\n"}
{"Action":"fail","Package":"p","Elapsed":0.1}
`,
			want: tally{passed: 1, failed: 1, failures: []string{"p"}}, shown: []string{"goleak"},
		},
		{
			name: "a package that does not build",
			in: `{"ImportPath":"p","Action":"build-output","Output":"p/a.go:1: undefined: x\n"}
{"ImportPath":"p","Action":"build-fail"}
{"Action":"output","Package":"p","Output":"FAIL\tp [build failed]\n"}
{"Action":"fail","Package":"p","Elapsed":0,"FailedBuild":"p"}
`,
			want: tally{failed: 1, failures: []string{"p"}}, shown: []string{"undefined: x", "[build failed]"},
		},
		{
			name: "a program that dies shows what its test said",
			in: `{"Action":"output","Package":"p","Test":"TestA","Output":"last words\n"}
{"Action":"fail","Package":"p","Elapsed":0.1}
`,
			want: tally{failed: 1, failures: []string{"p"}}, shown: []string{"last words"},
		},
		{
			name: "a skipped test says why",
			in: `{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:1: takes root\n"}
{"Action":"skip","Package":"p","Test":"TestA","Elapsed":0}
`,
			want: tally{skipped: 1}, shown: []string{"skipped TestA: a_test.go:1: takes root"},
		},
		{name: "words of the go command itself", in: "go: no such package", shown: []string{"go: no such package"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var out strings.Builder
			r := reader{out: &out, outputs: map[string][]string{}}
			r.all(strings.NewReader(test.in))
			if got, want := r.tally.String()+strings.Join(r.failures, ","),
				test.want.String()+strings.Join(test.want.failures, ","); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
			for _, s := range test.shown {
				if !strings.Contains(out.String(), s) {
					t.Errorf("%q is not shown in\n%s", s, out.String())
				}
			}
			for _, s := range test.hidden {
				if strings.Contains(out.String(), s) {
					t.Errorf("%q is shown in\n%s", s, out.String())
				}
			}
		})
	}
}
