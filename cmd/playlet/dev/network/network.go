// Package network creates the changes to the machine's network that the pods of `playlet dev` need, and undoes them: an unused
// subnet, a bridge, forwarding, and rules of iptables.
package network

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/playlet-dev/playlet/cmd/playlet/dev/programs"
)

const sysDir = "/proc/sys"

// Changes are the changes of a run, and the state before.
type Changes struct {
	// Bridge is the name of the pods' bridge, which did not exist before.
	Bridge string `json:"bridge"`
	// Sysctls are values before ours, by file below /proc/sys.
	Sysctls map[string]string `json:"sysctls,omitempty"`
	// Subnet is where pods' addresses are from; nothing on the machine used it before.
	Subnet string `json:"subnet"`
	// IPv4 and IPv6 are the rules of iptables and ip6tables before the run.
	IPv4 Rules `json:"ipv4"`
	IPv6 Rules `json:"ipv6"`
}

// Rules are tables and chains: "nat", "nat/CNI-HOSTPORT-DNAT".
type Rules struct {
	Tables []string `json:"tables,omitempty"`
	Chains []string `json:"chains,omitempty"`
	// Absent are the tables' own chains ("filter/FORWARD") that iptables shows and nftables does not have: they are made with
	// their first rule.
	Absent []string `json:"absent,omitempty"`
}

// Plan determines the changes of a run without making them. iptables is the path of the program. address is empty if the agent
// finds an address of the machine by itself, and otherwise the bridge's.
func Plan(ctx context.Context, iptables string) (c Changes, address string, err error) {
	if c.Bridge, err = freeBridge(); err != nil {
		return c, "", err
	}
	taken, err := takenSubnets()
	if err != nil {
		return c, "", err
	}
	subnet, err := freeSubnet(taken)
	if err != nil {
		return c, "", err
	}
	c.Subnet = subnet.String()
	routes, err := os.ReadFile("/proc/net/route")
	if err != nil {
		return c, "", err
	}
	if !hasDefaultRoute(string(routes)) {
		address = subnet.Addr().Next().String()
	}
	if c.Sysctls, err = forwardingBefore(sysDir); err != nil {
		return c, "", err
	}
	for _, i := range bothFamilies(iptables) {
		if *i.before(&c), err = i.there(ctx); err != nil {
			return c, "", err
		}
	}
	return c, address, nil
}

// Check rejects changes whose undoing would affect more than a run creates.
func (c *Changes) Check() error {
	if c.Bridge == "" || strings.ContainsAny(c.Bridge, "/ ") || c.Bridge[0] == '.' {
		return fmt.Errorf("a bridge of %q", c.Bridge)
	}
	if _, err := netip.ParsePrefix(c.Subnet); err != nil {
		return err
	}
	for name := range c.Sysctls {
		if !strings.HasPrefix(name, "net/ipv4/") || strings.Contains(name, "..") {
			return fmt.Errorf("a sysctl of %q", name)
		}
	}
	return nil
}

// Make lets the machine forward for the pods. Their bridge comes with the first of them. Rules carry the run's name.
func (c *Changes) Make(ctx context.Context, iptablesPath, run string) error {
	if len(c.Sysctls) > 0 {
		if err := os.WriteFile(filepath.Join(sysDir, ipForward), []byte("1"), 0); err != nil {
			return err
		}
	}
	return iptables{path: iptablesPath}.admit(ctx, c.Bridge, run)
}

// Undo undoes the changes and the remains of the run's pods, with the programs found now. It may be repeated.
func (c *Changes) Undo(run string) error {
	errs := []error{removeBridge(c.Bridge)}
	if path := programs.IPTables(); path != "" { // without it no rules can exist
		for _, i := range bothFamilies(path) {
			errs = append(errs, i.clean(context.Background(), run, c))
		}
	}
	return errors.Join(append(errs, restoreSysctls(sysDir, c.Sysctls))...)
}
