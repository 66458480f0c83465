package submissions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cmd/playlet/cli"
	"github.com/playlet-dev/playlet/cmd/playlet/client/base"
	"github.com/playlet-dev/playlet/cmd/playlet/client/names"
	"github.com/playlet-dev/playlet/messages"
)

const objectsLong = `List the ConfigMaps and Secrets that were submitted with "playlet run": their names and keys, never their
values. Other files in the agent's --object-dir are not listed.`

const objectsExample = `  # All of them
  playlet objects

  # Remove two; running pods keep their environment, and a pod that starts without them waits
  playlet objects rm configmap/settings secret/token -n shop`

// objectsCommand is one run of "playlet objects" or of its sub-command rm.
type objectsCommand struct {
	submitCommand
	namespace string
	bare      bool
}

func newObjectsCommand() *cobra.Command {
	c := &objectsCommand{}
	cmd := &cobra.Command{Use: "objects", Aliases: []string{"object"}, Short: "List and remove submitted ConfigMaps and Secrets",
		Long: objectsLong, Example: objectsExample, Args: cli.NoArguments}
	cmd.Flags().BoolVar(&c.bare, "no-headers", false, "Print the table without headings")
	cmd.Flags().StringVarP(&c.namespace, "namespace", "n", "", "Only objects of this `namespace`; of all if empty")
	cli.OutputFlag(cmd, &c.Output, "table", "table", "yaml", "json")
	rm := &objectsCommand{}
	rmCmd := &cobra.Command{
		Use: "rm KIND/NAME...", Aliases: []string{"delete"}, Short: "Remove submitted ConfigMaps and Secrets",
		Long:              "Remove ConfigMaps and Secrets that were submitted with \"playlet run\".",
		Example:           "  playlet objects rm configmap/settings\n  playlet objects rm secret/token -n shop --dry-run",
		ValidArgsFunction: names.Completion(&rm.Socket, rm.words),
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fmt.Errorf("which object? (playlet objects lists them; %s --help shows examples)", cmd.CommandPath())
			}
			return nil
		},
	}
	rmCmd.Flags().StringVarP(&rm.namespace, "namespace", "n", "default", "The objects' `namespace`")
	rm.addDryRun(rmCmd, dryRunOfRemoval)
	cmd.AddCommand(rm.Runs(rmCmd, rm.remove))
	return c.Runs(cmd, c.list)
}

func (c *objectsCommand) list(ctx context.Context, _ []string) error {
	got, err := base.Retry(ctx, startTimeout, func() (*api.SubmittedObjects, error) { return c.Client.SubmittedObjects(ctx) })
	if err != nil {
		return err
	}
	got.Objects = slices.DeleteFunc(got.Objects, func(o messages.SubmittedObject) bool {
		return c.namespace != "" && o.Namespace != c.namespace
	})
	switch {
	case c.Output != "table":
		return c.Print(got)
	case len(got.Objects) == 0:
		c.Note("no objects were submitted")
		return nil
	}
	t := &cli.Table{Out: c.Out, Heading: []string{"NAMESPACE", "KIND", "NAME", "KEYS", "AGE"}, Begun: c.bare}
	var rows [][]string
	for _, o := range got.Objects {
		rows = append(rows, []string{o.Namespace, o.Kind, o.Name, cli.OrNone(cli.Plain(strings.Join(o.Keys, ", "))),
			duration.HumanDuration(max(c.Now().Sub(o.Accepted), 0))})
	}
	return t.Print(rows)
}

// objectKinds are the names of kinds as kubectl takes them.
var objectKinds = map[string]string{
	"configmap": "ConfigMap", "configmaps": "ConfigMap", "cm": "ConfigMap", "secret": "Secret", "secrets": "Secret",
}

func (c *objectsCommand) remove(ctx context.Context, args []string) error {
	if kind := objectKinds[strings.ToLower(args[0])]; kind != "" && len(args) > 1 { // as kubectl has it: configmap settings
		args = slices.Clone(args[1:])
		for i := range args {
			args[i] = kind + "/" + args[i]
		}
	}
	var errs []error
	for _, arg := range args {
		word, name, _ := strings.Cut(arg, "/")
		kind := objectKinds[strings.ToLower(word)]
		if kind == "" || name == "" || strings.Contains(name, "/") {
			errs = append(errs, fmt.Errorf("%q names no object; write configmap/NAME or secret/NAME", arg))
			continue
		}
		gone, err := base.Retry(ctx, startTimeout, func() (*api.SubmitReply, error) {
			return c.Client.WithdrawObject(ctx, kind, cmp.Or(c.namespace, "default"), name, c.dryRun != "none")
		})
		if refused, ok := errors.AsType[*api.Error](err); ok && refused.Status == 404 {
			err = fmt.Errorf("%s (playlet objects lists them)", refused.Text)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		c.say(gone.Pods)
	}
	return errors.Join(errs...)
}

// words are the submitted objects as remove takes them.
func (c *objectsCommand) words(ctx context.Context, client *api.Client, _ []string) (out []string) {
	all, err := client.SubmittedObjects(ctx)
	if err != nil {
		return nil
	}
	for _, o := range all.Objects {
		if c.namespace == "" || o.Namespace == c.namespace {
			out = append(out, strings.ToLower(o.Kind)+"/"+o.Name)
		}
	}
	return out
}
