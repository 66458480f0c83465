//go:build e2e

package e2e

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/e2e/stack"
)

// An agent without pods stays small: scraped and asked by commands, it is below 40 MiB again when it rests.
func TestAnEmptyAgentIsSmall(t *testing.T) {
	const most = 40 << 10 // KiB
	s := stack.Start(t, stack.Options{})
	a := agentWith(t, s, func(a *stack.Agent) {
		a.Config["readOnlyPort"], a.Config["address"] = figuresPort, "127.0.0.1"
	})
	await(t, func() error { // it listens a moment after its commands are answered
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", figuresPort))
		if err == nil {
			must(t, conn.Close())
		}
		return err
	})
	for range 10 {
		for _, path := range []string{"/metrics/cadvisor", "/metrics/resource", "/stats/summary", "/metrics", "/pods"} {
			figure(t, path)
		}
		_, err := a.Pods(t.Context())
		must(t, err)
	}
	least := 0
	await(t, func() error {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", a.PID()))
		must(t, err)
		_, after, _ := strings.Cut(string(text), "\nVmRSS:")
		n, err := strconv.Atoi(strings.Fields(after)[0])
		must(t, err)
		if least == 0 || n < least {
			least = n
		}
		if n > most {
			return fmt.Errorf("%d KiB are resident, %d at the least so far", n, least)
		}
		return nil
	})
	t.Logf("%d KiB", least)
}
