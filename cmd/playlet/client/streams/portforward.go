package streams

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cmd/playlet/cli"
	"github.com/playlet-dev/playlet/cmd/playlet/client/names"
)

const portForwardLong = `Forward local ports to a pod until Ctrl-C. They are opened on the loopback unless --address is given.
LOCAL may be omitted (the same port) or empty (any free port); REMOTE may be the name of a port in the pod's spec.

Forwarding continues across restarts of the agent and replacements of the pod's sandbox, as long as a pod of this name exists.`

const portForwardExample = `  # http://localhost:8080 is port 80 of the pod
  playlet port-forward web 8080:80

  # Several; the second on any free port
  playlet port-forward web 8080:http :9090`

// forwarder is one run of "playlet port-forward".
type forwarder struct {
	streamCommand
	addresses []string
	pod       *api.Pod
	lost      context.CancelFunc // ends the connection to the pod
	refused   error              // the latest connection

	mu     sync.Mutex
	failed []string // ports of this machine that could not be listened on
}

func newPortForwardCommand() *cobra.Command {
	c := &forwarder{}
	cmd := &cobra.Command{
		Use: "port-forward POD [LOCAL:]REMOTE...", Short: "Forward local ports to a pod", Long: portForwardLong,
		Example: portForwardExample,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return fmt.Errorf("which pod, and which ports? (%s web 8080:80)", cmd.CommandPath())
			}
			return nil
		},
	}
	c.addFlags(cmd)
	cmd.Flags().StringSliceVar(&c.addresses, "address", []string{"localhost"}, "`Addresses` to listen on: IPs, or localhost")
	return c.Runs(cmd, c.run)
}

func (c *forwarder) run(ctx context.Context, args []string) error {
	ports := args[1:]
	for began := false; ; began = true {
		var err error
		if c.pod, err = c.find(ctx, args[0]); err == nil && !began {
			ports, err = numbered(c.pod.Pod, ports)
		}
		if err == nil {
			ports, err = c.forward(ctx, ports)
		}
		switch refused, _ := errors.AsType[*api.Error](err); {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, portforward.ErrLostConnectionToPod):
			c.note("the connection to the pod was lost; connecting again")
		case began && (errors.Is(err, api.ErrNotRunning) || refused != nil && refused.Status != http.StatusNotFound):
		default:
			return err
		}
		if !cli.Pause(ctx, cli.ReconnectEvery) {
			return nil
		}
	}
}

// forward forwards until the connection to the pod ends, and gives the ports with the local ones that were chosen.
func (c *forwarder) forward(ctx context.Context, ports []string) ([]string, error) {
	ctx, c.lost = context.WithCancel(ctx)
	defer c.lost()
	if err := c.free(ports); err != nil {
		return ports, err
	}
	listening := make(chan struct{})
	f, err := portforward.NewOnAddressesForStreamingWithContext(klog.NewContext(ctx, klog.New(c)), dialer{ctx, c},
		c.addresses, ports, listening, c.Out, c)
	if err != nil {
		return ports, errors.New(strings.TrimPrefix(err.Error(), "error "))
	}
	ended := make(chan error, 1)
	go func() { ended <- f.ForwardPorts() }()
	select {
	case err = <-ended:
	case <-listening:
		if chosen, err := f.GetPorts(); err == nil {
			for i, p := range chosen {
				ports[i] = fmt.Sprintf("%d:%d", p.Local, p.Remote)
			}
		}
		if c.failures() != nil {
			c.lost()
		}
		err = <-ended
	}
	if failed := cmp.Or(c.failures(), c.refused); failed != nil { // the library has only the text of it
		return ports, failed
	}
	return ports, err
}

// free returns an error if another program listens on a local port at an address of localhost. The library would forward on the
// other address alone, and clients of localhost would reach the other program.
func (c *forwarder) free(ports []string) error {
	if !slices.Contains(c.addresses, "localhost") {
		return nil
	}
	for _, p := range ports {
		local, _, _ := strings.Cut(p, ":")
		for network, address := range map[string]string{"tcp4": "127.0.0.1", "tcp6": "::1"} {
			l, err := net.Listen(network, net.JoinHostPort(address, local))
			if err == nil {
				err = l.Close()
			}
			if errors.Is(err, syscall.EADDRINUSE) {
				_, _ = fmt.Fprintf(c, "Unable to listen on port %s: %v", local, err)
				return c.failures()
			}
		}
	}
	return nil
}

// numbered replaces the names of ports by numbers, and rejects other text.
func numbered(pod *v1.Pod, ports []string) ([]string, error) {
	out := slices.Clone(ports)
	for i, text := range ports {
		local, remote, two := strings.Cut(text, ":")
		if !two {
			remote = local
		}
		n, err := strconv.ParseUint(remote, 10, 16)
		if err != nil {
			n = portNamed(pod, remote)
		}
		at, err := strconv.ParseUint(local, 10, 16)
		if !two {
			at, err = n, nil
		}
		if n == 0 || err != nil && local != "" {
			return nil, fmt.Errorf("port %q: write LOCAL:REMOTE or REMOTE, numbers up to 65535; "+
				"REMOTE may be a port's name in the pod's spec", text)
		}
		out[i] = fmt.Sprintf("%d:%d", at, n)
	}
	return out, nil
}

func portNamed(pod *v1.Pod, name string) uint64 {
	for i := range pod.Spec.Containers {
		for _, p := range pod.Spec.Containers[i].Ports {
			if p.Name == name && p.ContainerPort > 0 {
				return uint64(p.ContainerPort)
			}
		}
	}
	return 0
}

// dialer connects to the pod. One connection that a port refuses ends the library's connection to the pod; it is not let.
type dialer struct {
	ctx context.Context
	c   *forwarder
}

func (d dialer) Dial(...string) (httpstream.Connection, string, error) {
	pod := d.c.pod.Pod
	conn, err := d.c.Client.PortForward(d.ctx, pod.Namespace, pod.Name, string(pod.UID))
	if d.c.refused = err; err != nil {
		return nil, "", err
	}
	context.AfterFunc(d.ctx, func() { _ = conn.Close() })
	return lastingConnection{conn}, api.PortForwardProtocol, nil
}

type lastingConnection struct{ httpstream.Connection }

func (lastingConnection) Close() error { return nil }

// Write receives the library's messages about ports that it cannot listen on.
func (c *forwarder) Write(text []byte) (int, error) {
	port, why, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(string(text)), "Unable to listen on port "), ": ")
	switch {
	case strings.Contains(why, "address already in use"):
		why = "another program listens there; choose another, or none (:REMOTE) for any that is free"
	case strings.Contains(why, "cannot assign requested address"):
		why = "this machine has no address " + strings.Join(c.addresses, ", ")
	case strings.Contains(why, "permission denied"):
		why = "it needs root; choose one above 1023"
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed = append(c.failed, fmt.Sprintf("port %s of this machine: %s", port, why))
	return len(text), nil
}

func (c *forwarder) failures() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.failed) == 0 {
		return nil
	}
	return errors.New(strings.Join(c.failed, "; "))
}

// Init, Enabled, Info, WithValues, WithName and Error implement klog.LogSink. The library logs the failures of single
// connections there; everything but errors is dropped.
func (c *forwarder) Init(klog.RuntimeInfo)          {}
func (c *forwarder) Enabled(int) bool               { return false }
func (c *forwarder) Info(int, string, ...any)       {}
func (c *forwarder) WithValues(...any) klog.LogSink { return c }
func (c *forwarder) WithName(string) klog.LogSink   { return c }

// Error reports the failure of one connection.
func (c *forwarder) Error(err error, _ string, keysAndValues ...any) {
	port := "a port"
	for i := 0; i+1 < len(keysAndValues); i += 2 {
		if keysAndValues[i] == "remotePort" {
			port = fmt.Sprintf("port %v", keysAndValues[i+1])
		}
	}
	text := err.Error()
	switch {
	case errors.Is(err, io.EOF), strings.Contains(text, "connection reset by peer"), strings.Contains(text, "broken pipe"):
		return // either side has hung up
	case strings.Contains(text, "connection refused"):
		text = "nothing listens there"
	default:
		c.lost() // the sandbox may be another one by now
	}
	c.note(fmt.Sprintf("%s of pod %s: %s", port, names.Full(c.pod), text))
}
