package stack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
)

// Reboot simulates a power loss: agents, runtime, shims and containers are killed, and state in memory is lost: mounts, network,
// cgroups and the runtime's state directory. State on disk stays: the runtime's root, the assigned addresses, the agents'
// folders. Nothing is started again. It is for a test whose stack is the only one, as containers' processes and cgroups do not
// identify their stack.
func (s *Stack) Reboot() error {
	if !alone() {
		return errors.New("there is another stack, whose pods would die too")
	}
	s.agentMu.Lock()
	agents := s.agents
	s.agentMu.Unlock()
	for _, a := range agents {
		if err := a.Kill9(); err != nil {
			return err
		}
	}
	if err := errors.Join(s.KillRuntime(), s.killOurs(), s.unmountAll()); err != nil {
		return err
	}
	if left, err := s.mounts(); err != nil || len(left) > 0 {
		return fmt.Errorf("still mounted, so the state directory is not removed: %v, %v", left, err)
	}
	if err := errors.Join(os.RemoveAll(s.files().State()), dropCgroups()); err != nil {
		return err
	}
	if _, err := net.InterfaceByName(s.Bridge()); err == nil {
		if out, err := exec.Command("ip", "link", "delete", s.Bridge()).CombinedOutput(); err != nil {
			return fmt.Errorf("bridge: %w: %s", err, out)
		}
	}
	return nil
}

// LoseRuntime removes all that the runtime keeps on disk. It must not run, and nothing of it, as after Reboot.
func (s *Stack) LoseRuntime() error { return os.RemoveAll(s.root()) }

// Ctr runs containerd's own command in one of its namespaces, beside the CRI, and returns its output.
func (s *Stack) Ctr(ctx context.Context, namespace string, args ...string) (string, error) {
	all := append([]string{"--address", s.Socket(), "--namespace", namespace}, args...)
	out, err := exec.CommandContext(ctx, s.parts.Ctr, all...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("ctr %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out)), nil
}
