// Package network has what a run of `playlet dev` makes of the machine's network for pods, and what undoes it: a subnet that
// nothing uses, a bridge, forwarding, and rules of iptables.
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

// Changes are what a run makes, and what was there before.
type Changes struct {
	// Bridge is the name of the pods' bridge, which did not exist before.
	Bridge string `json:"bridge"`
	// Sysctls are values before ours, by file below /proc/sys.
	Sysctls map[string]string `json:"sysctls,omitempty"`
	// Subnet is where pods' addresses are from; nothing on the machine used it before.
	Subnet string `json:"subnet"`
	// IPv4 and IPv6 are what iptables and ip6tables had before.
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

// Plan finds out what a run will change, and makes nothing. iptables is the program. address is empty where the machine has one
// that the agent finds by itself, and else the bridge's.
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

// Check refuses changes that would have something else undone than what a run makes.
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

// Undo undoes the changes, and removes what pods of the run have left, with the programs that there are now. It may be done
// again.
func (c *Changes) Undo(run string) error {
	errs := []error{removeBridge(c.Bridge)}
	if path := programs.IPTables(); path != "" { // without it, nobody could have made rules
		for _, i := range bothFamilies(path) {
			errs = append(errs, i.clean(context.Background(), run, c))
		}
	}
	return errors.Join(append(errs, restoreSysctls(sysDir, c.Sysctls))...)
}
