package client

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/actors/server/observatory"
	"github.com/playlet-dev/playlet/cmd/playlet/cli"
)

const observatoryLong = `Print the address of the observatory, the web page that shows this node: its actors, its pods with what explains each, their
messages as they happen, figures, and chaos where it is enabled. The address has the page's token in it, and is as secret as
a password; only root can read it. Nothing is opened.

The agent serves the page on a port when it was started with --observatory-address=127.0.0.1:PORT. It is on the admin socket in
any case, without a token: whoever can connect to that is root on the node.`

const observatoryExample = `  # On this machine
  playlet observatory

  # From another one: forward the port, and open the same address there
  ssh -L 4195:127.0.0.1:4195 root@node

  # Without a port on the node, and only from a machine that nobody else uses: all who reach this port there are root here
  ssh -L 4195:/run/playlet/admin.sock root@node    # and open http://localhost:4195/`

func newObservatoryCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "observatory", Short: "Print the address of the web page that shows this node", Long: observatoryLong,
		Example: observatoryExample, Args: cli.NoArguments, SilenceUsage: true,
	}
	socket := cli.SocketFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		at, err := api.NewClient(*socket).Observatory(cmd.Context())
		if refused, ok := errors.AsType[*api.Error](err); ok && refused.Status == 404 {
			return fmt.Errorf("%s; it is also on the admin socket, which \"%s --help\" shows how to reach", refused.Text,
				cmd.CommandPath())
		}
		if err != nil {
			return err
		}
		token, err := observatory.ReadToken(at.TokenFile)
		if errors.Is(err, fs.ErrPermission) {
			return fmt.Errorf("only root may read the observatory's token, %s: run it with sudo", at.TokenFile)
		}
		if err != nil {
			return fmt.Errorf("the observatory's token: %w", err)
		}
		u := url.URL{Scheme: "http", Host: reachable(at.Address), Path: "/", RawQuery: "token=" + token}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), u.String())
		return err
	}
	return cmd
}

// reachable is an address to connect to on this machine: one that stands for all of them becomes the loopback.
func reachable(address string) string {
	host, port, err := net.SplitHostPort(address)
	if ip, ipErr := netip.ParseAddr(host); err == nil && ipErr == nil && ip.IsUnspecified() {
		return net.JoinHostPort("localhost", port)
	}
	return address
}
