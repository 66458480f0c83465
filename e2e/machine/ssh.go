package machine

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/term"
)

// dialLimit bounds one attempt to connect; a guest that boots accepts connections late.
const dialLimit = 15 * time.Second

// commandLimit bounds commands with a context without a deadline.
const commandLimit = 40 * time.Minute

// Result is the output of a command that ran.
type Result struct {
	Stdout, Stderr string
	Code           int // 128 and the signal's number, where a signal ended it
}

func (m *Machine) makeClient() error {
	key, err := os.ReadFile(m.guest.Key)
	if err != nil {
		return err
	}
	signer, err := ssh.ParsePrivateKey(key)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(m.guest.HostKey)
	if err != nil {
		return err
	}
	host, _, _, _, err := ssh.ParseAuthorizedKey(text)
	if err != nil {
		return err
	}
	m.client = ssh.ClientConfig{User: "root", Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)},
		HostKeyCallback: ssh.FixedHostKey(host), HostKeyAlgorithms: []string{host.Type()}, Timeout: dialLimit}
	return nil
}

// awaitSSH connects to a boot that is not the one of the ID before.
func (m *Machine) awaitSSH(ctx context.Context, before string) error {
	ctx, cancel := context.WithTimeout(ctx, bootLimit)
	defer cancel()
	for {
		err := m.greet(ctx, before)
		if err == nil {
			return nil
		}
		m.drop()
		select {
		case <-m.qemu.Exited():
			return fmt.Errorf("QEMU ended: %w", errors.Join(m.qemu.Err(), err))
		case <-ctx.Done():
			return err
		case <-time.After(time.Second):
		}
	}
}

func (m *Machine) greet(ctx context.Context, before string) error {
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	id, err := m.Output(ctx, "cat /proc/sys/kernel/random/boot_id")
	if err == nil && id == before {
		err = errors.New("it has not gone down yet")
	}
	return err
}

// connection returns the connection that commands share, and makes it where it is missing.
func (m *Machine) connection(ctx context.Context) (*ssh.Client, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.conn != nil {
		return m.conn, nil
	}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(m.port))
	raw, err := (&net.Dialer{Timeout: dialLimit}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	if err := raw.SetDeadline(time.Now().Add(dialLimit)); err != nil { // QEMU accepts before the guest listens
		return nil, errors.Join(err, raw.Close())
	}
	conn, channels, requests, err := ssh.NewClientConn(raw, address, &m.client)
	if err != nil {
		return nil, errors.Join(err, raw.Close())
	}
	if err := raw.SetDeadline(time.Time{}); err != nil {
		return nil, errors.Join(err, raw.Close())
	}
	m.conn = ssh.NewClient(conn, channels, requests)
	return m.conn, nil
}

// drop closes the connection; the next command makes a new one.
func (m *Machine) drop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.conn != nil {
		_ = m.conn.Close() // the other side may be gone
		m.conn = nil
	}
}

// Run runs a command of the shell as root. An error means that it was not carried out, or has not ended in time; a command that
// ends with another code than 0 is no error. A context without a deadline gives it ten minutes.
func (m *Machine) Run(ctx context.Context, command string) (Result, error) {
	return m.run(ctx, command, nil)
}

func (m *Machine) run(ctx context.Context, command string, stdin io.Reader) (Result, error) {
	if _, ok := ctx.Deadline(); !ok {
		limited, cancel := context.WithTimeout(ctx, commandLimit)
		defer cancel()
		ctx = limited
	}
	session, err := m.session(ctx)
	if err != nil {
		return Result{}, fmt.Errorf("%s: %q: %w", m.Name, command, err)
	}
	defer session.Close() //nolint:errcheck // it reports io.EOF after the end of the command
	var stdout, stderr bytes.Buffer
	session.Stdin, session.Stdout, session.Stderr = stdin, &stdout, &stderr
	ended := make(chan error, 1)
	go func() { ended <- session.Run(command) }()
	select {
	case err = <-ended:
	case <-ctx.Done():
		m.drop() // ends the session's goroutines, so that the buffers are whole
		err = errors.Join(ctx.Err(), <-ended)
	}
	result := Result{Stdout: stdout.String(), Stderr: stderr.String()}
	var exit *ssh.ExitError
	switch {
	case err == nil:
		return result, nil
	case errors.As(err, &exit):
		result.Code = exit.ExitStatus()
		return result, nil
	}
	m.drop()
	return result, fmt.Errorf("%s: %q: %w", m.Name, command, err)
}

// session opens a session, on a new connection where the old one is lost.
func (m *Machine) session(ctx context.Context) (*ssh.Session, error) {
	var errs error
	for range 2 {
		conn, err := m.connection(ctx)
		if err != nil {
			return nil, errors.Join(errs, err)
		}
		opened := make(chan error, 1)
		var session *ssh.Session
		go func() {
			var err error
			session, err = conn.NewSession()
			opened <- err
		}()
		select {
		case err = <-opened:
		case <-ctx.Done():
			m.drop()
			return nil, errors.Join(ctx.Err(), <-opened)
		}
		if err == nil {
			return session, nil
		}
		m.drop()
		errs = errors.Join(errs, err)
	}
	return nil, errs
}

// Output runs a command, and returns its standard output without the line's end. A code other than 0 is an error.
func (m *Machine) Output(ctx context.Context, command string) (string, error) {
	r, err := m.Run(ctx, command)
	if err == nil && r.Code != 0 {
		err = fmt.Errorf("%s: %q: exit code %d\n%s%s", m.Name, command, r.Code, r.Stdout, r.Stderr)
	}
	return strings.TrimSuffix(r.Stdout, "\n"), err
}

// Must is Output for the test that booted the machine: an error fails it.
func (m *Machine) Must(command string) string {
	m.tb.Helper()
	out, err := m.Output(m.tb.Context(), command)
	if err != nil {
		m.tb.Fatal(err)
	}
	return out
}

// Await repeats a command until it succeeds and its standard output is accepted by good; nil accepts all. It returns that
// output. The test fails after limit, with the last output.
func (m *Machine) Await(limit time.Duration, command string, good func(string) bool) string {
	m.tb.Helper()
	ctx, cancel := context.WithTimeout(m.tb.Context(), limit)
	defer cancel()
	for {
		r, err := m.Run(ctx, command)
		if err == nil && r.Code == 0 && (good == nil || good(r.Stdout)) {
			return r.Stdout
		}
		select {
		case <-ctx.Done():
			m.tb.Fatalf("after %s %q on %s gives code %d, %v\n%s%s", limit, command, m.Name, r.Code, err, r.Stdout, r.Stderr)
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// Write writes a file of the guest, and makes its folder.
func (m *Machine) Write(ctx context.Context, to, text string, mode os.FileMode) error {
	return m.write(ctx, to, strings.NewReader(text), mode)
}

// Put copies a file of this machine to the guest. Options.Files is faster for big ones.
func (m *Machine) Put(ctx context.Context, from, to string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // it was read only
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return m.write(ctx, to, f, info.Mode().Perm())
}

func (m *Machine) write(ctx context.Context, to string, from io.Reader, mode os.FileMode) error {
	r, err := m.run(ctx, fmt.Sprintf("mkdir -p %s && cat >%s && chmod %o %s", quote(path.Dir(to)), quote(to), mode, quote(to)), from)
	if err == nil && r.Code != 0 {
		err = fmt.Errorf("%s: writing %s: %s", m.Name, to, r.Stderr)
	}
	return err
}

// Get returns the content of a file of the guest.
func (m *Machine) Get(ctx context.Context, from string) (string, error) {
	r, err := m.Run(ctx, "cat "+quote(from))
	if err == nil && r.Code != 0 {
		err = fmt.Errorf("%s: reading %s: %s", m.Name, from, r.Stderr)
	}
	return r.Stdout, err
}

// Dial connects to an address as the guest reaches it, such as 127.0.0.1:6443.
func (m *Machine) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := m.connection(ctx)
	if err != nil {
		return nil, err
	}
	return conn.DialContext(ctx, network, address)
}

// Mirror has the guest's containerd pull the images of a registry, such as registry.k8s.io, from one that listens on this
// process's loopback interface at the address, over HTTP.
func (m *Machine) Mirror(ctx context.Context, registry, address string) error {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("server = \"https://%s\"\n\n[host.\"http://%s\"]\n  capabilities = [\"pull\", \"resolve\"]\n", registry,
		net.JoinHostPort(HostAddress, port))
	return m.Write(ctx, "/etc/containerd/certs.d/"+registry+"/hosts.toml", text, 0o644)
}

// Shell runs an interactive shell in the guest on this process's terminal, until it ends.
func (m *Machine) Shell(ctx context.Context) error {
	session, err := m.session(ctx)
	if err != nil {
		return err
	}
	defer session.Close() //nolint:errcheck // it reports io.EOF after the end of the shell
	session.Stdin, session.Stdout, session.Stderr = os.Stdin, os.Stdout, os.Stderr
	if in := int(os.Stdin.Fd()); term.IsTerminal(in) {
		width, height, err := term.GetSize(in)
		if err != nil {
			return err
		}
		if err := session.RequestPty(cmp.Or(os.Getenv("TERM"), "xterm"), height, width, ssh.TerminalModes{}); err != nil {
			return err
		}
		before, err := term.MakeRaw(in)
		if err != nil {
			return err
		}
		defer term.Restore(in, before) //nolint:errcheck // the terminal may be gone
	}
	if err := session.Shell(); err != nil {
		return err
	}
	var exit *ssh.ExitError
	if err := session.Wait(); err != nil && !errors.As(err, &exit) {
		return err
	}
	return nil
}
