package install

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"embed"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"
)

// Release is a release of Debian that virtual machines run.
type Release string

// Bookworm is Debian 12 with kernel 6.1, Trixie is Debian 13 with kernel 6.12.
const (
	Bookworm Release = "bookworm"
	Trixie   Release = "trixie"
)

// Releases are all releases, oldest first.
var Releases = []Release{Bookworm, Trixie}

// Guest is the image of a virtual machine, as absolute paths. Its files are never written: a machine runs on an overlay of Disk.
type Guest struct {
	Disk           string // an ext4 file system, raw and sparse, without a partition table
	Kernel, Initrd string
	Key            string // private key of root's ssh, PEM
	HostKey        string // public key of the guest's ssh server, in the form of authorized_keys
}

// GuestMachines is the number of machines that one network can have. Machine n has the address GuestAddress(n).
const GuestMachines = 8

// GuestAddress returns the address of machine n, counted from 1, in the network that it shares with others.
func GuestAddress(n int) string { return fmt.Sprintf("10.77.0.%d", n) }

// GuestMAC returns the hardware address of that network's card. Machine 0 is the card of QEMU's user network.
func GuestMAC(n int) string { return fmt.Sprintf("52:54:00:4c:00:%02x", n) }

// guestContents counts changes of the packages, files and sizes of the image.
const guestContents = 1

func (r Release) dir() string {
	return fmt.Sprintf("guest-%d-%s-containerd-%s-runc-%s", guestContents, r, containerd.version, runc.version)
}

// qemu are the programs that run and make images.
var qemu = []tool{{"qemu-system-x86", hasProgram("qemu-system-x86_64")}, {"qemu-utils", hasProgram("qemu-img")}}

// guestPackages are installed in the image: an init, a kernel, ssh, and the programs that containerd, kubeadm and the tests call.
var guestPackages = []string{
	"systemd", "systemd-sysv", "dbus", "udev", "login", "openssh-server", "linux-image-cloud-amd64", "initramfs-tools",
	"ca-certificates", "conntrack", "curl", "ebtables", "ethtool", "iproute2", "iptables", "kmod", "less", "libseccomp2",
	"nano", "nfs-common", "nfs-kernel-server", "procps", "socat", "systemd-oomd", "util-linux",
}

// guestSize is the size of the disk; a third is used.
const guestSize = "10G"

//go:embed guest
var guestFiles embed.FS

//go:embed guest-setup.sh
var guestSetup string

// EnsureGuest creates the images of virtual machines, including the runtimes of Ensure. It has a lock of its own, so that callers
// without need for an image do not wait for minutes.
func EnsureGuest(ctx context.Context, log io.Writer, releases ...Release) error {
	_, err := Locate(New)
	if _, without := LocateBusyBox(); err != nil || without != nil {
		if err := errors.Join(Ensure(ctx, log, New), locked(ctx, log, (*job).placeBusyBox)); err != nil {
			return err
		}
	}
	return lockedBy(ctx, log, "lock-guest", func(j *job) error {
		if err := j.apt(append(qemu, debootstrap)...); err != nil {
			return err
		}
		for _, release := range releases {
			err := j.place(release.dir(), func(dir string) error {
				what := fmt.Sprintf("making the image of a virtual machine with Debian's %s", release)
				return j.step(what, func() error { return j.makeGuest(release, dir) })
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// LocateGuest returns the image that EnsureGuest created; the error has the remedy.
func LocateGuest(release Release) (Guest, error) {
	cache, err := cacheDir()
	if err != nil {
		return Guest{}, err
	}
	if !slices.Contains(Releases, release) {
		return Guest{}, fmt.Errorf("no release %q: there are %q", release, Releases)
	}
	in := func(name string) string { return filepath.Join(cache, release.dir(), name) }
	g := Guest{Disk: in("disk.raw"), Kernel: in("vmlinuz"), Initrd: in("initrd.img"), Key: in("key"), HostKey: in("host-key.pub")}
	if err := missing(g.Disk, g.Kernel, g.Initrd, g.Key, g.HostKey); err != nil {
		return Guest{}, fmt.Errorf("the image of a virtual machine with %s is not complete (%w): run `go run ./e2e/parts -guest %s`",
			release, err, release)
	}
	for _, t := range qemu {
		if !t.there() {
			return Guest{}, fmt.Errorf("the program of Debian's package %s is missing: run `go run ./e2e/parts -guest %s`", t.pkg, release)
		}
	}
	return g, nil
}

// BootedGuest returns the folder with the state of a machine of the release that has booted under the QEMU of this machine. The
// folder is not there where EnsureBooted has not made it.
func BootedGuest(release Release) (string, error) {
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	name, err := bootedDir(release)
	return filepath.Join(cache, name), err
}

// bootedDir is the name of that folder. QEMU reads no state of another version.
func bootedDir(release Release) (string, error) {
	out, err := exec.Command("qemu-system-x86_64", "--version").Output()
	if err != nil {
		return "", err
	}
	_, version, _ := strings.Cut(string(out), "version ")
	version, _, _ = strings.Cut(strings.TrimSpace(version), " ")
	return release.dir() + "-booted-qemu-" + version, nil
}

// EnsureBooted has boot fill the folder of BootedGuest, unless it is there.
func EnsureBooted(ctx context.Context, log io.Writer, release Release, boot func(dir string) error) error {
	return lockedBy(ctx, log, "lock-guest", func(j *job) error {
		name, err := bootedDir(release)
		if err != nil {
			return err
		}
		return j.place(name, func(dir string) error {
			return j.step(fmt.Sprintf("booting a virtual machine with Debian's %s, from which tests go on", release),
				func() error { return boot(dir) })
		})
	})
}

func (j *job) makeGuest(release Release, dir string) error {
	root := filepath.Join(dir, "root")
	// In namespaces of their own, so that neither a mount nor a daemon of a package's script outlives a command.
	apart := func(args ...string) error {
		cmd := exec.CommandContext(j.ctx, "unshare", append([]string{"--mount", "--pid", "--fork", "--kill-child", "--mount-proc"}, args...)...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C")
		return run(cmd)
	}
	// Without its calls of fsync, dpkg takes a minute in place of four.
	const unsafe = "etc/dpkg/dpkg.cfg.d/machine"
	text, err := guestFiles.ReadFile("guest/" + unsafe)
	if err := errors.Join(err, os.MkdirAll(filepath.Join(root, filepath.Dir(unsafe)), 0o755),
		os.WriteFile(filepath.Join(root, unsafe), text, 0o644)); err != nil {
		return err
	}
	include := "--include=" + strings.Join(guestPackages, ",")
	if err := apart("debootstrap", "--variant=minbase", include, string(release), root); err != nil {
		return err
	}
	public, err := makeKey(filepath.Join(dir, "key"))
	if err != nil {
		return err
	}
	if err := errors.Join(fillGuest(root, public), j.addRuntime(root)); err != nil {
		return err
	}
	const setup = `mount -t proc proc "$0/proc" && exec chroot "$0" sh -c "$1"`
	if err := apart("sh", "-c", setup, root, guestSetup); err != nil {
		return err
	}
	for pattern, name := range map[string]string{"boot/vmlinuz-*": "vmlinuz", "boot/initrd.img-*": "initrd.img",
		"etc/ssh/ssh_host_ed25519_key.pub": "host-key.pub"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(found) != 1 {
			return fmt.Errorf("the new root file system has %q as %s (%v)", found, pattern, err)
		}
		if err := copyFile(found[0], filepath.Join(dir, name), 0o644); err != nil {
			return err
		}
	}
	for _, args := range [][]string{
		{"mke2fs", "-q", "-t", "ext4", "-d", root, filepath.Join(dir, "disk.raw"), guestSize},
		{"rm", "-rf", "--one-file-system", root},
	} {
		if err := run(exec.CommandContext(j.ctx, args[0], args[1:]...)); err != nil {
			return err
		}
	}
	return nil
}

// makeKey writes a new private key, and returns its public key in the form of authorized_keys.
func makeKey(path string) ([]byte, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		return nil, err
	}
	key, err := ssh.NewPublicKey(public)
	if err != nil {
		return nil, err
	}
	return ssh.MarshalAuthorizedKey(key), os.WriteFile(path, pem.EncodeToMemory(block), 0o600)
}

// fillGuest copies the files of guest below root, and writes those that are made of numbers and keys.
func fillGuest(root string, key []byte) error {
	hosts := "127.0.0.1 localhost\n::1 localhost ip6-localhost\n"
	files := map[string][]byte{"root/.ssh/authorized_keys": key}
	for n := 1; n <= GuestMachines; n++ {
		hosts += fmt.Sprintf("%s machine%d\n", GuestAddress(n), n)
		files[fmt.Sprintf("etc/systemd/network/20-machine%d.network", n)] = []byte(fmt.Sprintf(
			"[Match]\nMACAddress=%s\n\n[Network]\nAddress=%s/24\nLinkLocalAddressing=no\nIPv6AcceptRA=no\n", GuestMAC(n), GuestAddress(n)))
	}
	files["etc/hosts"] = []byte(hosts)
	err := fs.WalkDir(guestFiles, "guest", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := guestFiles.ReadFile(path)
		files[strings.TrimPrefix(path, "guest/")] = text
		return err
	})
	for path, text := range files {
		to := filepath.Join(root, path)
		err = errors.Join(err, os.MkdirAll(filepath.Dir(to), 0o755), os.RemoveAll(to))
		err = errors.Join(err, os.WriteFile(to, text, 0o644))
	}
	return err
}

// addRuntime copies the new runtime to the places where containerd and kubeadm look.
func (j *job) addRuntime(root string) error {
	r, err := Locate(New)
	if err != nil {
		return err
	}
	copies := map[string]string{r.Containerd: "usr/local/bin/containerd", r.Shim: "usr/local/bin/containerd-shim-runc-v2",
		r.Ctr: "usr/local/bin/ctr", r.Runc: "usr/local/sbin/runc"}
	for _, plugin := range []string{"bridge", "host-local", "loopback", "portmap"} {
		copies[filepath.Join(r.CNIDir, plugin)] = "opt/cni/bin/" + plugin
	}
	for from, to := range copies {
		to = filepath.Join(root, to)
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), copyFile(from, to, 0o755)); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(from, to string, mode os.FileMode) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close() //nolint:errcheck // it was read only
	out, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
