package iscsi_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
	"github.com/playlet-dev/playlet/actors/volumes/iscsi"
	"github.com/playlet-dev/playlet/actors/volumes/volumestest"
	"github.com/playlet-dev/playlet/messages"
)

const target = "iqn.2001-04.com.example:disk"

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func inline(lun int32) iscsi.Source {
	return iscsi.Inline("data", &v1.ISCSIVolumeSource{TargetPortal: "10.0.0.1", IQN: target, Lun: lun})
}

// node is a node with a fake of open-iscsi.
type node struct {
	volumestest.FakeISCSI
	iscsi.Initiator
	rootDir string
	top     *safepath.Root
}

func newNode(t *testing.T) node {
	volumestest.NeedMounts(t)
	fake, rootDir := volumestest.NewFakeISCSI(t), t.TempDir()
	must(t, os.MkdirAll(iscsi.Top(rootDir), 0o750))
	top, err := safepath.OpenRoot(iscsi.Top(rootDir))
	must(t, err)
	t.Cleanup(func() { must(t, top.Close()) })
	return node{fake, iscsi.Initiator{Root: fake.Root}, rootDir, top}
}

func (n node) login(t *testing.T, s iscsi.Source, secret map[string][]byte) (string, error) {
	return n.Login(t.Context(), safepath.Owner{Pod: "u"}, n.rootDir, n.top, s, secret)
}

func (n node) logout(t *testing.T, s iscsi.Source) error {
	return n.Logout(t.Context(), safepath.Owner{Pod: "u"}, n.rootDir, n.top, s.Folder())
}

// wantLeft checks the sessions and the names in the top folder.
func (n node) wantLeft(t *testing.T, sessions int, names ...string) {
	t.Helper()
	got, err := n.top.Names(".")
	must(t, err)
	if slices.Sort(got); n.Sessions(t) != sessions || !slices.Equal(got, names) {
		t.Errorf("got %d sessions and %q, want %d and %q", n.Sessions(t), got, sessions, names)
	}
}

func TestSource_Names(t *testing.T) {
	s := inline(3)
	if got, want := s.UniqueName(), "kubernetes.io/iscsi/10.0.0.1:"+target+":3"; got != want {
		t.Errorf("got the name %s, want %s", got, want)
	}
	if got, want := s.Folder(), "iface-default/10.0.0.1:3260-"+target+"-lun-3"; got != want {
		t.Errorf("got the folder %s, want %s", got, want)
	}
	s.Initiator = "iqn.2001-04.com.example:node"
	if got, want := s.Folder(), "iface-10.0.0.1:3260:data/10.0.0.1:3260-"+target+"-lun-3"; got != want {
		t.Errorf("got the folder %s, want %s", got, want)
	}
}

func TestSource_Check(t *testing.T) {
	must(t, inline(0).Check())
	for want, change := range map[string]func(*iscsi.Source){
		"the iqn":           func(s *iscsi.Source) { s.Target = "disk" },
		`iqn ""`:            func(s *iscsi.Source) { s.Target = "" },
		`iqn "iqn.2001-`:    func(s *iscsi.Source) { s.Target = target + "/../x" },
		"the initiatorName": func(s *iscsi.Source) { s.Initiator = "--logout" },
		`portal ""`:         func(s *iscsi.Source) { s.Portal = "" },
		`portal "-p"`:       func(s *iscsi.Source) { s.Others = []string{"-p"} },
		`portal "a/b"`:      func(s *iscsi.Source) { s.Portal = "a/b" },
		`portal "a:0"`:      func(s *iscsi.Source) { s.Portal = "a:0" },
		"between 0 and 255": func(s *iscsi.Source) { s.LUN = 256 },
		"no iscsiInterface": func(s *iscsi.Source) { s.Interface = "../x" },
		"are the same":      func(s *iscsi.Source) { s.Initiator = target },
		"needs a secretRef": func(s *iscsi.Source) { s.CHAP = true },
		"mount option":      func(s *iscsi.Source) { s.Options = []string{"a\nb"} },
	} {
		s := inline(0)
		if change(&s); s.Check() == nil || !strings.Contains(s.Check().Error(), want) {
			t.Errorf("got %v, want an error with %s", s.Check(), want)
		}
	}
}

func TestLogin_AndLogout(t *testing.T) {
	n := newNode(t)
	device, _ := volumestest.LoopDevice(t)
	n.AddUnit(t, "1", device)
	for range 2 { // the second finds the session
		if got, err := n.login(t, inline(1), nil); err != nil || got != device {
			t.Fatalf("got %q, %v, want %s", got, err, device)
		}
	}
	record, err := os.ReadFile(filepath.Join(n.top.Path(), inline(1).Folder(), "iscsi.json"))
	must(t, err)
	if want := `{"VolName":"data","Portals":["10.0.0.1:3260"],"Iqn":"` + target +
		`","Lun":"1","InitIface":"default","Iface":"default","InitiatorName":""}`; string(record) != want {
		t.Errorf("got the record %s, want %s", record, want)
	}
	for range 2 {
		must(t, n.logout(t, inline(1)))
	}
	n.wantLeft(t, 0)
	if n.Count(t, "--login") != 1 || n.Count(t, "-u") != 1 {
		t.Errorf("got the calls %q, want one login and one logout", n.Calls(t))
	}
}

// A session with two volumes ends after the last one. The disk of the first is removed from the kernel.
func TestLogout_SharedSession(t *testing.T) {
	n := newNode(t)
	for _, lun := range []string{"1", "2"} {
		device, _ := volumestest.LoopDevice(t)
		n.AddUnit(t, lun, device)
	}
	for lun := range int32(2) {
		_, err := n.login(t, inline(lun+1), nil)
		must(t, err)
	}
	must(t, n.logout(t, inline(1)))
	n.wantLeft(t, 1, "iface-default")
	removed, err := filepath.Glob(filepath.Join(n.FakeISCSI.Root, "sys/devices/host1/session1/target1:0:0/1:0:0:1/block/*/device/delete"))
	if must(t, err); len(removed) != 1 {
		t.Fatalf("got the disks %q", removed)
	}
	if text, err := os.ReadFile(removed[0]); err != nil || string(text) != "1" {
		t.Errorf("got %q, %v, want the disk to be removed", text, err)
	}
	must(t, n.logout(t, inline(2)))
	n.wantLeft(t, 0)
	if n.Count(t, "-u") != 1 {
		t.Errorf("got the calls %q, want one logout", n.Calls(t))
	}
}

func TestLogout_SessionOfOthers(t *testing.T) {
	n := newNode(t)
	device, _ := volumestest.LoopDevice(t)
	n.AddUnit(t, "1", device)
	_, err := n.login(t, inline(1), nil)
	must(t, err)
	must(t, os.RemoveAll(filepath.Join(n.top.Path(), "iface-default"))) // as if an administrator had logged in
	for range 2 {
		_, err = n.login(t, inline(1), nil)
		must(t, err)
	}
	must(t, n.logout(t, inline(1)))
	n.wantLeft(t, 1)
	if n.Count(t, "-u") != 0 || n.Count(t, "delete") != 0 {
		t.Errorf("got the calls %q, want neither a logout nor a removal", n.Calls(t))
	}
}

// An interruption of a logout does not make a session of others the agent's.
func TestLogout_InterruptedWithSessionOfOthers(t *testing.T) {
	n := newNode(t)
	device, _ := volumestest.LoopDevice(t)
	n.AddUnit(t, "1", device)
	_, err := n.login(t, inline(1), nil)
	must(t, err)
	must(t, os.RemoveAll(filepath.Join(n.top.Path(), "iface-default"))) // as if an administrator had logged in
	_, err = n.login(t, inline(1), nil)
	must(t, err)
	inTheWay := filepath.Join(n.top.Path(), inline(1).Folder(), "file")
	must(t, os.WriteFile(inTheWay, nil, 0o600))
	if err := n.logout(t, inline(1)); err == nil {
		t.Error("got no error for a folder with a file of others")
	}
	must(t, os.Remove(inTheWay))
	must(t, n.logout(t, inline(1)))
	n.wantLeft(t, 1)
	if n.Count(t, "-u") != 0 {
		t.Errorf("got the calls %q, want no logout", n.Calls(t))
	}
}

// A logical unit has one disk on the node: another interface or first portal would give it a second one, which could be mounted,
// or checked, beside the first.
func TestLogin_UnitWithAnotherPlace(t *testing.T) {
	interfaced, portal := inline(1), inline(1)
	interfaced.Interface, portal.Portal = "other", "10.0.0.2:3260"
	for name, s := range map[string]iscsi.Source{"interface": interfaced, "portal": portal} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			device, _ := volumestest.LoopDevice(t)
			n.AddUnit(t, "1", device)
			_, err := n.login(t, inline(1), nil)
			must(t, err)
			calls := len(n.Calls(t))
			if _, err := n.login(t, s, nil); err == nil || !strings.Contains(err.Error(), "in use on this node by another interface or portal") {
				t.Errorf("got %v, want a refusal", err)
			}
			if now := n.Calls(t); len(now) != calls {
				t.Errorf("got the calls %q, want none for the second place", now[calls:])
			}
			must(t, n.logout(t, inline(1)))
			if _, err := n.login(t, s, nil); err != nil && strings.Contains(err.Error(), "another interface or portal") {
				t.Errorf("after the logout: %v", err)
			}
		})
	}
}

// A mounted volume has the sessions of its record. A later pod with more portals makes none that no record has.
func TestLogin_MountedVolume(t *testing.T) {
	n := newNode(t)
	device, _ := volumestest.LoopDevice(t)
	n.AddUnit(t, "1", device)
	_, err := n.login(t, inline(1), nil)
	must(t, err)
	volumestest.MountTmpfs(t, filepath.Join(n.top.Path(), inline(1).Folder()))
	more, calls := inline(1), len(n.Calls(t))
	more.Others = []string{"10.0.0.2:3260"}
	if got, err := n.login(t, more, nil); err != nil || got == "" || len(n.Calls(t)) != calls {
		t.Errorf("got %q, %v and the calls %q, want the disk of the only session", got, err, n.Calls(t)[calls:])
	}
}

func TestLogout_DiskInUse(t *testing.T) {
	n := newNode(t)
	device, _ := volumestest.LoopDevice(t)
	n.AddUnit(t, "1", device)
	_, err := n.login(t, inline(1), nil)
	must(t, err)
	f, err := os.OpenFile(device, os.O_RDONLY|unix.O_EXCL, 0)
	must(t, err)
	if err := n.logout(t, inline(1)); err == nil || !strings.Contains(err.Error(), "is in use by") {
		t.Errorf("got %v, want an error with the user of the disk", err)
	}
	n.wantLeft(t, 1, "iface-default")
	must(t, f.Close())
	must(t, n.logout(t, inline(1)))
	n.wantLeft(t, 0)
}

func TestLogin_Causes(t *testing.T) {
	for code, c := range map[string]struct {
		call string
		want messages.CauseCode
	}{
		"4": {"--login", messages.CauseServerUnreachable}, "8": {"--login", messages.CauseServerUnreachable},
		"24": {"--login", messages.CauseTargetCredentials}, "19": {"--login", messages.CauseTargetRefused},
		"12": {"--login", messages.CauseISCSIInterface}, "6": {"-o new", messages.CauseISCSIInterface},
		"20": {"--login", messages.CauseISCSIDaemon},
	} {
		t.Run(code, func(t *testing.T) {
			n := newNode(t)
			n.Fail(t, code+" "+c.call+"\n")
			_, err := n.login(t, inline(1), nil)
			if err == nil || messages.CauseOf(err).Code != c.want || !strings.Contains(err.Error(), "target "+target+" at portal 10.0.0.1:3260") {
				t.Fatalf("got %v (%+v), want the cause %s", err, messages.CauseOf(err), c.want)
			}
			must(t, n.logout(t, inline(1)))
			n.wantLeft(t, 0)
			if left, _ := filepath.Glob(filepath.Join(n.FakeISCSI.Root, "etc/iscsi/nodes/*/*")); len(left) > 0 {
				t.Errorf("the records %q of open-iscsi are left", left)
			}
		})
	}
	t.Run("no program", func(t *testing.T) {
		n := newNode(t)
		t.Setenv("PATH", "/nonexistent")
		if _, err := iscsi.Find(); err == nil {
			t.Skip("the machine has iscsiadm")
		}
		if _, err := n.login(t, inline(1), nil); messages.CauseOf(err).Code != messages.CauseMountProgramAbsent {
			t.Errorf("got %v", err)
		}
	})
	t.Run("no lun", func(t *testing.T) {
		n := newNode(t)
		iscsi.SetDiskTimeout(t, 0)
		if _, err := n.login(t, inline(1), nil); messages.CauseOf(err).Code != messages.CauseLUNAbsent {
			t.Errorf("got %v", err)
		}
		text, err := os.ReadFile(filepath.Join(n.FakeISCSI.Root, "sys/class/scsi_host/host1/scan"))
		if must(t, err); string(text) != "0 0 1" {
			t.Errorf("got the scan %q, want one of the unit alone", text)
		}
	})
}

// The password is in open-iscsi's record during the login, and nowhere else.
func TestLogin_Password(t *testing.T) {
	n := newNode(t)
	device, _ := volumestest.LoopDevice(t)
	n.AddUnit(t, "1", device)
	s := inline(1)
	s.CHAP, s.Secret = true, "s"
	secret := map[string][]byte{"node.session.auth.username": []byte("me"), "node.session.auth.password": []byte("pass = #word")}
	_, err := n.login(t, s, secret)
	must(t, err)
	record := filepath.Join(n.FakeISCSI.Root, "etc/iscsi/nodes", target, "10.0.0.1,3260")
	text, err := os.ReadFile(record)
	if want := "node.session.auth.authmethod = CHAP\nnode.session.auth.username = me\nnode.session.auth.password = pass = #word\n" +
		"# END RECORD\n"; err != nil || string(text) != want {
		t.Errorf("got %q, %v, want %q", text, err, want)
	}
	if st, err := os.Stat(record); err != nil || st.Mode() != 0o600 {
		t.Errorf("got %v, %v, want a file for root alone", st.Mode(), err)
	}
	must(t, n.logout(t, s))
	if _, err := os.Stat(record); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the record is left: %v", err)
	}
	if calls := strings.Join(n.Calls(t), "\n"); strings.Contains(calls, "word") {
		t.Errorf("the password is an argument: %s", calls)
	}
	for want, value := range map[string]string{"has no node.session.auth.password": "", "control characters": "a\nb"} {
		secret["node.session.auth.password"] = []byte(value)
		if _, err := n.login(t, s, secret); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %s", err, want)
		}
	}
	n.wantLeft(t, 0)
}

// One of two portals suffices.
func TestLogin_Portals(t *testing.T) {
	n := newNode(t)
	iscsi.SetDiskTimeout(t, time.Millisecond) // for a multipath device that never appears
	device, _ := volumestest.LoopDevice(t)
	n.AddUnit(t, "1", device)
	s := inline(1)
	s.Others = []string{"10.0.0.2", "10.0.0.1:3260"}
	n.Fail(t, "4 10.0.0.1:3260 -I default --login\n")
	got, err := n.login(t, s, nil)
	if err != nil || got != device {
		t.Fatalf("got %q, %v, want %s", got, err, device)
	}
	n.wantLeft(t, 1, "iface-default")
	n.Fail(t, "")
	_, err = n.login(t, s, nil)
	must(t, err)
	n.wantLeft(t, 2, "iface-default")
	must(t, n.logout(t, s))
	n.wantLeft(t, 0)
}

func TestLogin_InitiatorName(t *testing.T) {
	n := newNode(t)
	device, _ := volumestest.LoopDevice(t)
	n.AddUnit(t, "1", device)
	s := inline(1)
	s.Initiator = "iqn.2001-04.com.example:node"
	_, err := n.login(t, s, nil)
	must(t, err)
	must(t, n.logout(t, s))
	for _, want := range []string{"-o update -n iface.transport_name -v tcp", "-o update -n iface.initiatorname -v " + s.Initiator, "-o delete"} {
		if !slices.Contains(n.Calls(t), "-m iface -I 10.0.0.1:3260:data "+want) {
			t.Errorf("got the calls %q, want one with %s", n.Calls(t), want)
		}
	}
}

// A record is read under the mount of its volume, and from the folder's name if it is lost.
func TestRecords(t *testing.T) {
	n := newNode(t)
	s := inline(1)
	s.Others = []string{"10.0.0.2"}
	must(t, n.top.MkdirAll(s.Folder(), 0o750))
	must(t, s.Write(n.top))
	must(t, n.top.Mount(s.Folder(), "tmpfs", ""))
	defer func() { must(t, n.top.Unmount(s.Folder())) }()
	must(t, n.top.MkdirAll("iface-other/[fd00::1]:3260-eui.02004567A425678D-lun-7", 0o750))
	must(t, n.top.MkdirAll("iface-other/lost+found", 0o750))
	got, err := iscsi.Records(n.rootDir)
	must(t, err)
	if len(got) != 2 || len(got[s.Folder()].Portals) != 2 {
		t.Errorf("got %+v, want the record under the mount", got)
	}
	if lost := got["iface-other/[fd00::1]:3260-eui.02004567A425678D-lun-7"]; lost.UniqueName() !=
		"kubernetes.io/iscsi/[fd00::1]:3260:eui.02004567A425678D:7" || lost.Iface != "other" {
		t.Errorf("got %+v, want the one of the folder's name", lost)
	}
}
