package suite

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

func TestRead_SortsSpecsByOutcome(t *testing.T) {
	path := filepath.Join(t.TempDir(), "junit_01.xml")
	const report = `<testsuites><testsuite>
<testcase name="[ReportBeforeSuite]" status="passed"></testcase>
<testcase name="[It] b passes" status="passed"></testcase>
<testcase name="[It] a passes" status="passed"></testcase>
<testcase name="[It] fails" status="failed"><failure message="first line&#xA;second"></failure></testcase>
<testcase name="[It] panics" status="panicked"><failure>nil
stack</failure></testcase>
<testcase name="[SynchronizedAfterSuite]" status="failed"><failure message="left over"></failure></testcase>
<testcase name="[It] is cut off" status="interrupted"><failure message="Interrupted by User"></failure></testcase>
<testcase name="[It] skips itself" status="skipped"><skipped message="skipped - no such feature"></skipped></testcase>
<testcase name="[It] is not asked for" status="skipped"><skipped message="skipped"></skipped></testcase>
</testsuite></testsuites>`
	if err := os.WriteFile(path, []byte(report), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	want := Results{
		Passed:  []Spec{{"a passes", ""}, {"b passes", ""}},
		Failed:  []Spec{{"[SynchronizedAfterSuite]", "left over"}, {"fails", "first line"}, {"panics", "nil"}},
		Skipped: []Spec{{"skips itself", "skipped - no such feature"}},
		Others:  []Spec{{"is cut off", ""}, {"is not asked for", ""}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}
