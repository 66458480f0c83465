package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/pflag"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cmd/playlet/cli"
	"github.com/playlet-dev/playlet/config"
	"github.com/playlet-dev/playlet/config/systemd"
)

// subject is the configuration to check, as flags, and the socket of its agent.
type subject struct {
	flags *config.Flags
	set   *pflag.FlagSet
	// socket is the socket of the agent. named means that the user named it, and chosen that PLAYLET_SOCKET did.
	socket        string
	named, chosen bool
	// service is the unit file of the installed service, if the flags are the service's. unread is that file if only root can
	// read it.
	service, unread string
	// running means that the flags are those of the running agent, and pid is its process, if that can be seen. unasked is the
	// reason that no running agent was found.
	running bool
	pid     int
	unasked error
}

// newSubject returns the configuration of doctor's own flags.
func newSubject(flags *config.Flags, set *pflag.FlagSet) subject {
	s := subject{flags: flags, set: set, socket: set.Lookup("admin-socket").Value.String(), named: set.Changed("admin-socket")}
	if path := os.Getenv(cli.SocketVariable); path != "" && !s.named {
		s.socket, s.named, s.chosen = path, true, true
	}
	return s
}

// choose returns the configuration to check. The flags of s, those of doctor itself, take precedence over the flags of the
// running agent or of the service installed below root. An installed service is the running agent if both have the same
// root folder.
func (s subject) choose(ctx context.Context, root string) (subject, error) {
	changed := s.set.Changed
	if changed("config") || changed("config-dir") {
		return s, nil
	}
	installed, err := s.overInstalled(root)
	if (err == nil || s.named) && !changed("root-dir") {
		running, unasked := s.overRunning(ctx, installed.socket)
		if unasked == nil && (err != nil || installed.service == "" || rootOf(running) != rootOf(installed)) {
			return running, nil
		}
		installed.unasked = unasked
	}
	if errors.Is(err, fs.ErrPermission) {
		s.unread = installed.service
		return s, nil
	}
	return installed, err
}

func rootOf(s subject) string { return s.set.Lookup("root-dir").Value.String() }

// overInstalled merges the flags of s into the flags of the service that is installed below root. It returns s if none is
// installed.
func (s subject) overInstalled(root string) (subject, error) {
	args, file, err := systemd.Installed(root)
	if err != nil || file == "" {
		s.service = file
		return s, err
	}
	out, err := s.over(args)
	if err != nil {
		err = fmt.Errorf("%s: %w", file, err)
	}
	out.service = file
	return out, err
}

// runningLimit bounds the wait for the running agent. The checks also have to report an agent that hangs.
const runningLimit = 3 * time.Second

// overRunning merges the flags of s into the flags of the agent behind the socket.
func (s subject) overRunning(ctx context.Context, socket string) (subject, error) {
	ctx, cancel := context.WithTimeout(ctx, runningLimit)
	defer cancel()
	v, err := api.NewClient(socket).Version(ctx)
	if err != nil {
		return s, err
	}
	if v.Args == nil {
		return s, fmt.Errorf("the agent at %s, version %s, does not report its flags", socket, cli.Plain(v.Version))
	}
	out, err := s.over(v.Args)
	out.socket, out.running, out.pid = socket, true, v.PID
	return out, err
}

// over merges the flags of s into the arguments of an agent.
func (s subject) over(args []string) (subject, error) {
	parse := func(args []string) (*config.Flags, *pflag.FlagSet, error) {
		set := pflag.NewFlagSet("playlet", pflag.ContinueOnError)
		parsed := config.AddFlags(set)
		return parsed, set, set.Parse(args)
	}
	below, _, err := parse(args)
	if err != nil {
		return s, err
	}
	out := s
	out.flags, out.set, err = parse(s.flags.Over(below))
	if !s.named {
		out.socket = out.set.Lookup("admin-socket").Value.String()
	}
	return out, err
}
