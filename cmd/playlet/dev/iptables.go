package dev

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// iptablesTime bounds one call; waiting for another program's lock is most of it.
const iptablesTime = 30 * time.Second

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

// restore carries out orders, those of a table all or none.
func (i iptables) restore(ctx context.Context, orders string) error {
	_, err := i.run(ctx, i.path+"-restore", orders, "--noflush", "-w", "10")
	return err
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
		if err := i.restore(ctx, orders); err != nil {
			return err
		}
		if now, err = i.save(ctx); err != nil {
			return err
		}
	}
	for _, order := range now.orphans(record) {
		_ = i.restore(ctx, order) // one that fails has got a rule meanwhile: it is another's
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
