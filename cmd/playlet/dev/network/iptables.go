package network

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/playlet-dev/playlet/cmd/playlet/dev/programs"
)

// iptablesTime bounds one call; waiting for another program's lock is most of it.
const iptablesTime = 30 * time.Second

// iptables calls the programs of that name.
type iptables struct {
	path string
	v6   bool
}

// bothFamilies are iptables and, where it is beside that, ip6tables: plugins use it too, if only to look.
func bothFamilies(path string) []iptables {
	out := []iptables{{path: path}}
	if v6 := programs.Find("ip6tables", []string{filepath.Dir(path)}); v6 != "" {
		out = append(out, iptables{v6, true})
	}
	return out
}

// before returns the family's rules before the run.
func (i iptables) before(c *Changes) *Rules {
	if i.v6 {
		return &c.IPv6
	}
	return &c.IPv4
}

// family returns the family's number in nftables(8).
func (i iptables) family() uint8 {
	if i.v6 {
		return unix.NFPROTO_IPV6
	}
	return unix.NFPROTO_IPV4
}

func (i iptables) run(ctx context.Context, program, stdin string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, iptablesTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(problems.String()))
	}
	return out.String(), nil
}

// save reads all tables.
func (i iptables) save(ctx context.Context) (ruleset, error) {
	out, err := i.run(ctx, i.path+"-save", "")
	return parseRuleset(out), err
}

// there returns the family's present rules. Unlike iptables, a request to nftables creates no chains.
func (i iptables) there(ctx context.Context) (Rules, error) {
	now, err := i.save(ctx)
	if err != nil {
		return Rules{}, err
	}
	rules := Rules{Tables: now.tables, Chains: now.chains()}
	if behind, err := i.nftables(ctx); err != nil || !behind {
		return rules, err
	}
	for _, table := range now.tables {
		for _, chain := range now.builtin[table] {
			there, err := chainThere(i.family(), table, chain)
			if err != nil {
				return rules, err
			}
			if !there {
				rules.Absent = append(rules.Absent, table+"/"+chain)
			}
		}
	}
	return rules, nil
}

// nftables reports whether the program uses nftables, whose tables and chains can be removed. Those of the legacy programs exist
// as long as the kernel's module.
func (i iptables) nftables(ctx context.Context) (bool, error) {
	version, err := i.run(ctx, i.path, "", "--version")
	return strings.Contains(version, "nf_tables"), err
}

// restore applies orders; the orders of one table are atomic.
func (i iptables) restore(ctx context.Context, orders string) error {
	_, err := i.run(ctx, i.path+"-restore", orders, "--noflush", "-w", "10")
	return err
}

// admit lets the machine forward for pods, whatever the policy of its chain FORWARD is.
func (i iptables) admit(ctx context.Context, bridge, run string) error {
	var errs []error
	for _, side := range []string{"-i", "-o"} {
		_, err := i.run(ctx, i.path, "", "-w", "10", "-I", "FORWARD", side, bridge,
			"-m", "comment", "--comment", run, "-j", "ACCEPT")
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// clean removes the run's rules and chains.
func (i iptables) clean(ctx context.Context, run string, c *Changes) error {
	before := *i.before(c)
	now, err := i.save(ctx)
	if err != nil {
		return err
	}
	if orders := now.undo(run, c.Subnet, before); orders != "" {
		if err := i.restore(ctx, orders); err != nil {
			return err
		}
		if now, err = i.save(ctx); err != nil {
			return err
		}
	}
	for _, order := range now.orphans(before) {
		_ = i.restore(ctx, order) // one that fails has got a rule meanwhile: it is another's
		if now, err = i.save(ctx); err != nil {
			return err
		}
	}
	if behind, err := i.nftables(ctx); err != nil || !behind {
		return err
	}
	for _, chain := range now.unused(before) {
		if err := deleteChain(i.family(), chain.table, chain.name); err != nil {
			return err
		}
	}
	for _, table := range now.emptied(before) {
		if err := deleteTable(i.family(), table, now.builtin[table]); err != nil {
			return err
		}
	}
	return nil
}
