package memory

import (
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

func TestMemoryIsGivenBackAtRest(t *testing.T) {
	const start, least = 60 << 20, 30 << 20
	var g releasePolicy
	for i, look := range []struct {
		busy     bool
		resident uint64
		due      bool
	}{
		{true, start, false},               // it starts
		{false, start, true},               // and is no longer busy
		{false, start, true},               // the first giving holds no other back
		{false, start, false},              // it was just given
		{false, start, false},              //
		{false, least + worthwhile, false}, // it has hardly grown
		{true, start, false},               // it is busy again
		{false, least + worthwhile + 1, true},
		{false, start, false},
	} {
		due := g.due(look.busy, look.resident)
		if due != look.due {
			t.Errorf("look %d: due is %t", i, due)
		}
		if due {
			g.given(least, 3)
		}
	}
}

func TestWhatIsResidentIsRead(t *testing.T) {
	if own, files := residentNow(); own < 64<<10 || files < 64<<10 {
		t.Errorf("%d and %d bytes", own, files)
	}
}

func TestWhereTheProgramIs(t *testing.T) {
	const none, some = "Rss: 8 kB\nAnonymous:             0 kB\nVmFlags: rd mr mw me\n",
		"Rss: 8 kB\nAnonymous:             4 kB\nVmFlags: rd mr mw me\n"
	maps := "00400000-0196c000 r-xp 00000000 fe:00 1234   /usr/local/bin/playlet\n" + none +
		"0196c000-03421000 r--p 0156c000 fe:00 1234   /usr/local/bin/playlet\n" + none +
		"03421000-034aa000 r--p 03021000 fe:00 1234   /usr/local/bin/playlet\n" + some + // relocated, then protected
		"034aa000-034ab000 rw-p 03021000 fe:00 1234   /usr/local/bin/playlet\n" + none +
		"034ab000-03500000 r--s 03021000 fe:00 1234   /usr/local/bin/playlet\n" + none +
		"03500000-03501000 r-xp 00000000 fe:00 99     /usr/local/bin/playlet2\n" + none +
		"03501000-03502000 r-xp 00000000 fe:00 99     /usr/local/bin/playlet (deleted)\n" + none +
		"c000000000-c000400000 rw-p 00000000 00:00 0\n" + none +
		"7ffd00000000-7ffd00002000 r-xp 00000000 00:00 0   [vdso]\n" + none + "nonsense\n" + none
	want := []addresses{{0x400000, 0x196c000}, {0x196c000, 0x3421000}}
	if got := programPages(maps, "/usr/local/bin/playlet"); !reflect.DeepEqual(got, want) {
		t.Errorf("%x", got)
	}
}

func TestTheProgramIsUnmapped(t *testing.T) {
	before := residentFile(t)
	if err := unmapProgram(); err != nil {
		t.Fatal(err)
	}
	if after := residentFile(t); after >= before {
		t.Errorf("%d KiB of files are mapped, %d before", after, before)
	}
}

// residentFile is how many KiB of files this process has mapped and in memory.
func residentFile(t *testing.T) int {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "RssFile:")
	n, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return n
}
