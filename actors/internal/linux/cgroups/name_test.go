package cgroups

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestNames(t *testing.T) {
	const uid = "1234-ab"
	for _, c := range []struct {
		root              string
		class             v1.PodQOSClass
		cgroupfs, systemd string
	}{
		{"", v1.PodQOSGuaranteed, "/kubepods/pod1234-ab", "/kubepods.slice/kubepods-pod1234_ab.slice"},
		{"/", v1.PodQOSBurstable, "/kubepods/burstable/pod1234-ab",
			"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1234_ab.slice"},
		{"/a-b/c/", v1.PodQOSBestEffort, "/a-b/c/kubepods/besteffort/pod1234-ab",
			"/a_b.slice/a_b-c.slice/a_b-c-kubepods.slice/a_b-c-kubepods-besteffort.slice/a_b-c-kubepods-besteffort-pod1234_ab.slice"},
	} {
		name := PodName(ParseName(c.root), c.class, uid)
		if got := name.Cgroupfs(); got != c.cgroupfs {
			t.Errorf("cgroupfs: %s, want %s", got, c.cgroupfs)
		}
		if got := name.Systemd(); got != c.systemd {
			t.Errorf("systemd: %s, want %s", got, c.systemd)
		}
		for _, systemd := range []bool{false, true} {
			got, ok := podIn(ClassName(ParseName(c.root), c.class), name.base(systemd), systemd)
			if !ok || Key(got) != Key(uid) {
				t.Errorf("%s is read as the group of %q, %v", name.base(systemd), got, ok)
			}
		}
	}
	if got := ParseName("/").Systemd() + ParseName("").Cgroupfs(); got != "//" {
		t.Errorf("the root is %q", got)
	}
}

// Groups of other names are not taken for pods, and are kept.
func TestOtherGroupsAreNoPods(t *testing.T) {
	class := ClassName(nil, v1.PodQOSBurstable)
	for _, literal := range []string{"besteffort", "burstable", "x-podabc", "kubepods-podabc.slice",
		"kubepods-burstable-podabc.scope"} {
		for _, systemd := range []bool{false, true} {
			if uid, ok := podIn(class, literal, systemd); ok {
				t.Errorf("%s is taken for pod %s", literal, uid)
			}
		}
	}
}

// Two names with a common prefix do not share memory.
func TestChildrenAreApart(t *testing.T) {
	base := make(Name, 1, 10)
	base[0] = "a"
	b, c := base.Child("b"), base.Child("c")
	if b.Cgroupfs() != "/a/b" || c.Cgroupfs() != "/a/c" {
		t.Errorf("%s and %s", b.Cgroupfs(), c.Cgroupfs())
	}
}
