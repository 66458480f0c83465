package dev

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// iptablesTime bounds one call; waiting for another program's lock is most of it.
const iptablesTime = 30 * time.Second

// portmapChains are those that the plugin portmap makes with the first mapped port and never removes.
var portmapChains = []string{"CNI-HOSTPORT-DNAT", "CNI-HOSTPORT-MASQ", "CNI-HOSTPORT-SETMARK"}

// ruleset is what iptables-save prints, by table.
type ruleset struct {
	tables []string // in their order
	// builtin and own chains, and rules ("-A CHAIN …") of each table.
	builtin, own, rules map[string][]string
}

// parseRuleset reads the output of iptables-save. Comments and counters are not kept.
func parseRuleset(saved string) ruleset {
	r := ruleset{builtin: map[string][]string{}, own: map[string][]string{}, rules: map[string][]string{}}
	table := ""
	for line := range strings.Lines(saved) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "*"):
			table = line[1:]
			r.tables = append(r.tables, table)
		case strings.HasPrefix(line, ":"):
			name, policy, _ := strings.Cut(line[1:], " ")
			if strings.HasPrefix(policy, "-") {
				r.own[table] = append(r.own[table], name)
			} else {
				r.builtin[table] = append(r.builtin[table], name)
			}
		case strings.HasPrefix(line, "-A "):
			r.rules[table] = append(r.rules[table], line)
		}
	}
	return r
}

// chains lists tables' own chains as "table/chain".
func (r ruleset) chains() []string {
	var out []string
	for _, table := range r.tables {
		for _, chain := range r.own[table] {
			out = append(out, table+"/"+chain)
		}
	}
	return out
}

// undo gives what iptables-restore --noflush has to be told so that nothing of the record is left: rules that carry the
// run's name in a comment, the chains that those lead to, and portmap's own chains where they were not there before and
// nobody else's rules use them. Empty when there is nothing of it.
func (r ruleset) undo(record *Record) string {
	var out strings.Builder
	for _, table := range r.tables {
		if lines := r.undoTable(table, record); len(lines) > 0 {
			fmt.Fprintf(&out, "*%s\n%s\nCOMMIT\n", table, strings.Join(lines, "\n"))
		}
	}
	return out.String()
}

func (r ruleset) undoTable(table string, record *Record) []string {
	gone := map[string]bool{}
	others := map[string]bool{} // chains of portmap's that have a rule of someone else's
	for _, rule := range r.rules[table] {
		if !carries(rule, record.Name()) {
			if target := jump(rule); strings.HasPrefix(target, "CNI-DN-") {
				others[chainOf(rule)] = true
			}
			continue
		}
		if target := jump(rule); strings.HasPrefix(target, "CNI-") && !slices.Contains(portmapChains, target) {
			gone[target] = true
		}
	}
	if !others["CNI-HOSTPORT-DNAT"] {
		for _, chain := range portmapChains {
			if slices.Contains(r.own[table], chain) && !slices.Contains(record.Chains, table+"/"+chain) {
				gone[chain] = true
			}
		}
	}
	var deletions, chains []string
	for _, rule := range r.rules[table] {
		ours := carries(rule, record.Name()) || gone[jump(rule)]
		if ours && !gone[chainOf(rule)] { // the others go with their chain
			deletions = append(deletions, "-D "+strings.TrimPrefix(rule, "-A "))
		}
	}
	for _, chain := range r.own[table] {
		if gone[chain] {
			chains = append(chains, chain)
		}
	}
	for _, chain := range chains {
		deletions = append(deletions, "-F "+chain)
	}
	for _, chain := range chains {
		deletions = append(deletions, "-X "+chain)
	}
	return deletions
}

// emptied are the tables that were not there before and hold nothing now: with nftables behind it, iptables makes a
// table's chains with the first rule, and leaves them.
func (r ruleset) emptied(record *Record) []string {
	return slices.DeleteFunc(slices.Clone(r.tables), func(table string) bool {
		return len(r.rules[table]) > 0 || len(r.own[table]) > 0 || slices.Contains(record.Tables, table)
	})
}

// carries says whether a rule's comment names this run: names are unique, and followed by what no name holds.
func carries(rule, name string) bool {
	for rest := rule; ; {
		_, after, found := strings.Cut(rest, name)
		if !found {
			return false
		}
		if after == "" || !strings.ContainsAny(after[:1], "abcdefghijklmnopqrstuvwxyz0123456789") {
			return true
		}
		rest = after
	}
}

// chainOf is the chain that a rule is in.
func chainOf(rule string) string {
	fields := strings.Fields(rule)
	if len(fields) < 2 {
		return ""
	}
	return fields[1]
}

// jump is where a rule leads to; comments come before it.
func jump(rule string) string {
	_, target, found := cutLast(rule, " -j ")
	if !found {
		return ""
	}
	return strings.Fields(target + " .")[0]
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// iptables calls the programs of that name.
type iptables struct{ path string }

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

// admit lets the machine forward for pods, whatever the policy of its chain FORWARD is.
func (i iptables) admit(ctx context.Context, record *Record) error {
	var errs []error
	for _, side := range []string{"-i", "-o"} {
		_, err := i.run(ctx, i.path, "", "-w", "10", "-I", "FORWARD", side, record.Bridge,
			"-m", "comment", "--comment", record.Name(), "-j", "ACCEPT")
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// clean removes what is the record's.
func (i iptables) clean(ctx context.Context, record *Record) error {
	now, err := i.save(ctx)
	if err != nil {
		return err
	}
	if orders := now.undo(record); orders != "" {
		if _, err := i.run(ctx, i.path+"-restore", orders, "--noflush", "-w", "10"); err != nil {
			return err
		}
		if now, err = i.save(ctx); err != nil {
			return err
		}
	}
	version, err := i.run(ctx, i.path, "", "--version")
	if err != nil || !strings.Contains(version, "nf_tables") {
		return err // tables of the legacy programs live as long as the kernel's module
	}
	for _, table := range now.emptied(record) {
		if err := deleteTable(table, now.builtin[table]); err != nil {
			return err
		}
	}
	return nil
}
