package network

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func TestForwarding_RestoredWithDependentSettings(t *testing.T) {
	sys := t.TempDir()
	values := map[string]string{
		ipForward: "0", "net/ipv4/conf/all/forwarding": "0", "net/ipv4/conf/eth0/forwarding": "0",
		"net/ipv4/conf/eth1/forwarding":      "1",
		"net/ipv4/conf/all/accept_redirects": "1", "net/ipv4/conf/gone/forwarding": "0", "net/ipv4/conf/eth0/rp_filter": "2",
	}
	for name, value := range values {
		write(t, filepath.Join(sys, name), value+"\n")
	}
	before, err := forwardingBefore(sys)
	must(t, err)
	if len(before) != 6 {
		t.Errorf("before: %v", before)
	}
	for name := range before {
		write(t, filepath.Join(sys, name), "1")
	}
	write(t, filepath.Join(sys, "net/ipv4/conf/eth0/rp_filter"), "1") // changed by another program
	must(t, os.RemoveAll(filepath.Join(sys, "net/ipv4/conf/gone")))
	for range 2 {
		must(t, restoreSysctls(sys, before))
	}
	values["net/ipv4/conf/eth0/rp_filter"] = "1"
	delete(values, "net/ipv4/conf/gone/forwarding")
	for name, want := range values {
		if got, err := readSysctl(sys, name); got != want || err != nil {
			t.Errorf("%s is %q, %v, want %q", name, got, err, want)
		}
	}
	write(t, filepath.Join(sys, ipForward), "1\n")
	if before, err := forwardingBefore(sys); len(before) > 0 || err != nil {
		t.Errorf("it is on, and yet: %s, %v", fmt.Sprint(before), err)
	}
}
