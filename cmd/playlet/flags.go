package main

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/playlet-dev/playlet/config"
)

// addSocketFlag adds the flag of every command that asks the agent.
func addSocketFlag(cmd *cobra.Command) *string {
	return cmd.Flags().String("admin-socket", config.DefaultAdminSocket, "Unix `socket` on which the agent is asked")
}

// addOutputFlag adds -o, with its completion.
func addOutputFlag(cmd *cobra.Command, p *string, otherwise string, forms ...string) {
	cmd.Flags().StringVarP(p, "output", "o", otherwise, "Output `form`: "+strings.Join(forms, ", "))
	complete := cobra.FixedCompletions(forms, cobra.ShellCompDirectiveNoFileComp)
	if err := cmd.RegisterFlagCompletionFunc("output", complete); err != nil {
		panic(err) // the flag was added a moment ago
	}
}

// oneOf refuses a flag's value that is not among the known ones.
func oneOf(flag, value string, known ...string) error {
	if slices.Contains(known, value) {
		return nil
	}
	known = slices.DeleteFunc(slices.Clone(known), func(s string) bool { return s == "" })
	return fmt.Errorf("--%s=%q is unknown; it may be %s", flag, value, strings.Join(known, ", "))
}

// plain keeps a text that others wrote (a registry's answer, a manifest's path) to one line, and its escape sequences
// away from the terminal.
func plain(s string) string {
	return strings.Join(strings.FieldsFunc(s, unicode.IsControl), " ")
}
