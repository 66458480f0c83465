package machine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/playlet-dev/playlet/cmd/playlet/dev/process"
	"github.com/playlet-dev/playlet/e2e/isolate"
	"github.com/playlet-dev/playlet/e2e/parts/install"
)

// HostAddress is the address at which a guest reaches the loopback interface of this process.
const HostAddress = "10.0.2.2"

// FilesPath is the folder in the guest with the files of Options.Files.
const FilesPath = "/srv/files"

// bootLimit bounds a boot. It takes a minute on a quiet machine.
const bootLimit = 10 * time.Minute

// The default devices of a machine.
const (
	defaultMemory = 3072
	defaultCPUs   = 2
)

// Options describe a machine. The zero value is a machine of Debian 12 that is in no network with others.
type Options struct {
	Release install.Release // Bookworm when empty
	Memory  int             // in MiB; 3072 when 0
	CPUs    int             // 2 when 0
	// Files is a folder of this machine that is copied into the guest below FilesPath, read-only. It is the way for big files.
	Files string
	// Network is shared with other machines; nil: none.
	Network *Network
	// Kernel are further words of the kernel's command line.
	Kernel string
	// Ports are ports of the guest that programs of this network namespace reach at the guest's Address. One machine without a
	// Network at a time can have any.
	Ports []int
}

// userAddress is the address of each guest in QEMU's user network.
const userAddress = "10.0.2.15"

// Machine is a virtual machine. Its methods may be called from several goroutines, except for those that start or end it.
type Machine struct {
	// Name is the guest's host name. Address is its address in Options.Network, or in QEMU's user network.
	Name, Address string

	tb      testing.TB
	options Options
	guest   install.Guest
	dir     string
	number  int // in Options.Network, from 1; 0: none
	port    int // of ssh, at the loopback interface
	client  ssh.ClientConfig
	qemu    *process.Process
	release func() // ends the thread that QEMU's end depends on
	// state is the file with the memory of a machine that has booted, from which the first start goes on; empty: it boots.
	state string

	mu   sync.Mutex
	conn *ssh.Client // nil: none, or lost
}

// Boot starts a machine and waits until its ssh answers. The machine ends with the test; a test that failed prints the end of
// the console, and keeps all of it in its folder of artifacts. Boot skips the test where there is no image.
func Boot(tb testing.TB, o Options) *Machine {
	tb.Helper()
	if _, err := install.LocateGuest(cmp.Or(o.Release, install.Bookworm)); err != nil {
		tb.Skip("there is no virtual machine:", err)
	}
	dir, err := os.MkdirTemp(isolate.Dir(), "machine") // Main removes it when the test is interrupted
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			tb.Error(err)
		}
	})
	m, err := New(dir, o)
	if err != nil {
		tb.Fatal(err)
	}
	m.tb = tb
	artifacts := tb.ArtifactDir() // made first, so that it is still there in the cleanup
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("the console of %s ends with\n%s", m.Name, process.Tail(m.Console(), 40))
			kept := filepath.Join(artifacts, m.Name+".console")
			if err := os.WriteFile(kept, []byte(m.Console()), 0o644); err != nil {
				tb.Error(err)
			}
		}
		if err := m.Kill(); err != nil {
			tb.Error(err)
		}
	})
	if err := m.Start(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	return m
}

// New makes a machine that is off. All that it writes is in dir, which must exist.
func New(dir string, o Options) (*Machine, error) {
	o.Release, o.Memory, o.CPUs = cmp.Or(o.Release, install.Bookworm), cmp.Or(o.Memory, defaultMemory), cmp.Or(o.CPUs, defaultCPUs)
	m := &Machine{Name: "machine", Address: userAddress, options: o, dir: dir}
	var err error
	if m.guest, err = install.LocateGuest(o.Release); err != nil {
		return nil, err
	}
	if err := m.makeClient(); err != nil {
		return nil, err
	}
	if o.Network != nil {
		if m.number, err = o.Network.add(); err != nil {
			return nil, err
		}
		m.Name, m.Address = fmt.Sprintf("machine%d", m.number), install.GuestAddress(m.number)
	}
	disk, format := m.guest.Disk, "raw"
	if booted, err := install.BootedGuest(o.Release); err == nil && o.resumes() {
		if _, err := os.Stat(booted); err == nil {
			disk, format, m.state = filepath.Join(booted, "disk.qcow2"), "qcow2", filepath.Join(booted, "memory")
		}
	}
	commands := [][]string{{"qemu-img", "create", "-q", "-f", "qcow2", "-F", format, "-b", disk, m.in("disk.qcow2")}}
	if o.Files != "" && !o.resumes() {
		size, err := folderSize(o.Files)
		if err != nil {
			return nil, err
		}
		commands = append(commands, []string{"mke2fs", "-q", "-t", "ext4", "-O", "^has_journal", "-m", "0", "-L", "files",
			"-d", o.Files, m.in("files.raw"), strconv.FormatInt(size/1024*5/4+16<<10, 10)})
	}
	for _, args := range commands {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%q: %w: %s", args, err, out)
		}
	}
	return m, nil
}

func (m *Machine) in(name string) string { return filepath.Join(m.dir, name) }

// Start switches the machine on, and waits until its ssh answers.
func (m *Machine) Start(ctx context.Context) error {
	if m.qemu.Running() {
		return errors.New("the machine is on")
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	m.port = port
	if len(m.options.Ports) > 0 {
		// Connections come from the loopback address, which QEMU replaces: the guest rejects those from its own.
		route := exec.CommandContext(ctx, "ip", "route", "replace", "local", m.Address, "dev", "lo", "src", "127.0.0.1")
		if out, err := route.CombinedOutput(); err != nil {
			return fmt.Errorf("the address of %s: %w: %s", m.Name, err, out)
		}
	}
	// Its virtual processors compete with the other tests of this machine: at the same priority, their timeouts inside expire.
	cmd := exec.Command("nice", append([]string{"-n", "-10", "qemu-system-x86_64"}, m.arguments()...)...)
	log, err := os.OpenFile(m.in("qemu.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() //nolint:errcheck // QEMU has it, too
	cmd.Stdout, cmd.Stderr = log, log
	if m.qemu, m.release, err = startBound(cmd); err != nil {
		return err
	}
	err = m.awaitSSH(ctx, "")
	if err == nil && m.state != "" {
		m.state = ""
		_, err = m.Output(ctx, fmt.Sprintf("date -s @%d", time.Now().Unix()))
	}
	if err == nil && m.options.Files != "" {
		err = m.giveFiles(ctx)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("%s does not boot: %w; its console ends with\n%s", m.Name, err, process.Tail(m.Console(), 40)),
			m.Kill())
	}
	return nil
}

// resumes reports whether a machine with the options can go on from one that has booted, which has the usual devices.
func (o Options) resumes() bool {
	return o.Network == nil && o.Kernel == "" && o.Memory == defaultMemory && o.CPUs == defaultCPUs && os.Getenv("PLAYLET_E2E_ACCEL") == ""
}

// arguments returns QEMU's arguments. KVM is only used with PLAYLET_E2E_ACCEL=kvm: an accessible /dev/kvm does not prove that
// guests boot.
func (m *Machine) arguments() []string {
	accel, cpu := "tcg,thread=multi,tb-size=256", "max"
	if os.Getenv("PLAYLET_E2E_ACCEL") == "kvm" {
		accel, cpu = "kvm", "host"
	}
	line := "root=/dev/vda rw console=ttyS0 net.ifnames=0 mitigations=off loglevel=4 systemd.hostname=" + m.Name + " " + m.options.Kernel
	outside := fmt.Sprintf("user,id=outside,hostfwd=tcp:127.0.0.1:%d-:22", m.port)
	for _, port := range m.options.Ports {
		outside += fmt.Sprintf(",hostfwd=tcp:%s:%d-:%d", m.Address, port, port)
	}
	args := []string{"-M", "q35", "-accel", accel, "-cpu", cpu, "-smp", strconv.Itoa(m.options.CPUs), "-m", strconv.Itoa(m.options.Memory),
		"-nodefaults", "-no-user-config", "-display", "none", "-qmp", "unix:" + m.in("qmp") + ",server=on,wait=off",
		"-kernel", m.guest.Kernel, "-initrd", m.guest.Initrd, "-append", line,
		"-chardev", "file,id=console,append=on,path=" + m.in("console"), "-serial", "chardev:console",
		"-device", "virtio-rng-pci",
		"-drive", "file=" + m.in("disk.qcow2") + ",if=virtio,format=qcow2,cache=unsafe,discard=unmap",
		"-netdev", outside,
		"-device", "virtio-net-pci,romfile=,netdev=outside,mac=" + install.GuestMAC(0)}
	if m.state != "" {
		args = append(args, "-incoming", "exec:cat "+quote(m.state))
	}
	if m.options.Files != "" && !m.options.resumes() {
		args = append(args, "-drive", "file="+m.in("files.raw")+",if=virtio,format=raw,readonly=on")
	}
	if m.number > 0 {
		args = append(args, "-netdev", "socket,id=shared,localaddr=127.0.0.1,mcast="+m.options.Network.group,
			"-device", "virtio-net-pci,romfile=,netdev=shared,mac="+install.GuestMAC(m.number))
	}
	return args
}

// Console returns the output of the serial console, of all boots.
func (m *Machine) Console() string {
	text, err := os.ReadFile(m.in("console"))
	if err != nil {
		text = []byte("no console: " + err.Error())
	}
	if log, err := os.ReadFile(m.in("qemu.log")); err == nil && len(log) > 0 {
		text = append(append(text, "\nQEMU: "...), log...)
	}
	return string(text)
}

// Reboot has systemd reboot the machine, and waits until its ssh answers again.
func (m *Machine) Reboot(ctx context.Context) error {
	before, err := m.Output(ctx, "cat /proc/sys/kernel/random/boot_id")
	if err != nil {
		return err
	}
	if _, err := m.Output(ctx, "systemctl --no-block reboot"); err != nil {
		return err
	}
	if err := m.awaitSSH(ctx, before); err != nil {
		return fmt.Errorf("%s does not reboot: %w; its console ends with\n%s", m.Name, err, process.Tail(m.Console(), 40))
	}
	return nil
}

// PowerOff has systemd power the machine off, and waits for the end of QEMU. Start switches it on again.
func (m *Machine) PowerOff(ctx context.Context) error {
	if _, err := m.Output(ctx, "systemctl --no-block poweroff"); err != nil {
		return err
	}
	return m.AwaitOff(ctx)
}

// AwaitOff waits until the machine is off.
func (m *Machine) AwaitOff(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, bootLimit)
	defer cancel()
	select {
	case <-m.qemu.Exited():
		m.drop()
		m.release()
		return m.qemu.Err()
	case <-ctx.Done():
		return fmt.Errorf("%s does not power off: %w; its console ends with\n%s", m.Name, ctx.Err(), process.Tail(m.Console(), 40))
	}
}

// Kill cuts the power. A machine that is off stays so.
func (m *Machine) Kill() error {
	if !m.qemu.Running() {
		return nil
	}
	m.drop()
	err := m.qemu.End(syscall.SIGKILL, time.Minute)
	m.release()
	return err
}

// startBound starts a program that is killed when this process ends, by SIGKILL, too. The kernel binds it to the thread that
// starts it, so the thread is kept until release is called.
func startBound(cmd *exec.Cmd) (p *process.Process, release func(), err error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started, done := make(chan struct{}), make(chan struct{})
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		p, err = process.Start(cmd)
		close(started)
		if err == nil {
			<-done
		}
	}()
	<-started
	return p, sync.OnceFunc(func() { close(done) }), err
}

// freePort returns a port of the loopback interface that nothing listens on.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// folderSize is the sum of the sizes of a folder's files, each rounded up to a block.
func folderSize(dir string) (int64, error) {
	var sum int64
	err := filepath.WalkDir(dir, func(_ string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			sum += (info.Size() + 8191) &^ 4095
		}
		return err
	})
	return sum, err
}

// Network is an Ethernet that machines share. QEMU carries it by multicast on the loopback interface.
type Network struct {
	group string // address and port
	mu    sync.Mutex
	count int
}

// NewNetwork makes a network. Networks of one network namespace differ by their ports.
func NewNetwork() (*Network, error) {
	l, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, err
	}
	port := l.LocalAddr().(*net.UDPAddr).Port
	return &Network{group: fmt.Sprintf("230.0.0.1:%d", port)}, l.Close()
}

func (n *Network) add() (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.count == install.GuestMachines {
		return 0, fmt.Errorf("a network has at most %d machines", n.count)
	}
	n.count++
	return n.count, nil
}

// quote makes one word of the shell of a text.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
