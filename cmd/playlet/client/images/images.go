// Package images holds "playlet images" and its sub-commands.
package images

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/distribution/reference"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cmd/playlet/cli"
	"github.com/playlet-dev/playlet/cmd/playlet/client/base"
	"github.com/playlet-dev/playlet/cmd/playlet/client/names"
	"github.com/playlet-dev/playlet/messages"
)

const long = `List the images on this node, with the pods that use each. An image is in use while a container uses it, even an
exited one, and while a pod is about to start with it. LAST USED counts from the agent's start: ">3h" means not used in the
three hours since then.

An image can be named as it is printed, as in a pod's spec (web, web:1), or by the beginning of its ID.`

const example = `  # All images, with the pods that use them
  playlet images

  # Pull an image before a pod needs it
  playlet images pull registry.example/web:2

  # See which images can be removed and how much space that frees, then remove them
  playlet images prune --dry-run
  playlet images prune`

const (
	progressEvery = 10 * time.Second
	// timeout is how long a question is repeated while the agent cannot answer it: it is being restarted, or collects images.
	timeout = 3 * time.Minute
	shortID = 12 // digits
)

// command is one run of one of them.
type command struct {
	base.Command
	bare bool
}

// NewCommand is "playlet images".
func NewCommand() *cobra.Command {
	c := &command{}
	cmd := &cobra.Command{Use: "images", Aliases: []string{"image"}, Short: "List, pull and remove images", Long: long,
		Example: example, Args: cli.NoArguments}
	list := &cobra.Command{Use: "list", Aliases: []string{"ls"}, Short: "List the images on this node", Long: long,
		Args: cli.NoArguments}
	for _, l := range []*cobra.Command{cmd, list} {
		cli.OutputFlag(l, &c.Output, "table", append([]string{"table", "wide"}, cli.ObjectOutputs...)...)
		l.Flags().BoolVar(&c.bare, "no-headers", false, "Print the table without headings")
	}
	pull := &cobra.Command{Use: "pull IMAGE...", Short: "Pull images, with the node's own credentials", Args: needsImage,
		Long: "Pull images with the credentials of the node's docker configuration and credential providers. Pulls\n" +
			"share a queue with those of pods; an image that is already present is pulled again. A pull continues when this\n" +
			"command is interrupted."}
	rm := &cobra.Command{Use: "rm IMAGE...", Aliases: []string{"remove"}, Short: "Remove unused images",
		Args: needsImage, ValidArgsFunction: names.Completion(&c.Socket, removable),
		Long: "Remove images with all their tags. An image that is in use, or pinned in the runtime, is kept: the error names\n" +
			"the pods."}
	var dry bool
	prune := &cobra.Command{Use: "prune", Short: "Remove all unused images", Args: cli.NoArguments,
		Long: "Remove all images that the agent's image garbage collection would remove if the disk were full. Images\n" +
			"that are in use, pinned, about to be used by a pod, or younger than imageMinimumGCAge are kept."}
	prune.Flags().BoolVar(&dry, "dry-run", false, "Print the images that would be removed, and remove nothing")
	cmd.AddCommand(c.Runs(list, c.list), c.Runs(pull, c.pull), c.Runs(rm, c.remove),
		c.Runs(prune, func(ctx context.Context, _ []string) error { return c.prune(ctx, dry) }))
	return c.Runs(cmd, c.list)
}

func needsImage(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("which image? (%s --help shows how it is named)", cmd.CommandPath())
	}
	return nil
}

func (c *command) list(ctx context.Context, _ []string) error {
	print, err := cli.PrinterOf(c.Output, c.bare)
	if err != nil {
		return err
	}
	all, err := c.images(ctx)
	switch {
	case err != nil:
		return err
	case print != nil:
		return printObjects(c.Out, all, print)
	case len(all) == 0:
		c.Note("no images")
		return nil
	}
	t := cli.Table{Out: c.Out, Heading: []string{"REPOSITORY:TAG", "ID", "SIZE", "LAST USED", "IN USE BY"}, Begun: c.bare}
	if c.Output == "wide" {
		t.Heading = append(t.Heading, "DIGEST", "PRUNE")
	}
	var rows [][]string
	for i := range all {
		img := &all[i]
		users := usersText(img.Users)
		if n := strings.Count(users, ", ") + 1; n > maxUsers && c.Output != "wide" {
			users = fmt.Sprintf("%d pods", n)
		}
		for n, tag := range tags(img) {
			row := []string{tag, short(img.ID), bytesText(img.Size), lastUsed(img, c.Now()), cli.OrNone(users)}
			if c.Output == "wide" {
				digest := ""
				if len(img.Digests) > 0 {
					_, digest, _ = strings.Cut(img.Digests[min(n, len(img.Digests)-1)], "@")
				}
				row = append(row, cli.OrNone(digest), cmp.Or(img.Kept, "would remove it"))
			}
			rows = append(rows, row)
		}
	}
	return t.Print(rows)
}

// maxUsers is how many pods the table names; of more it has the number, and all with -o wide.
const maxUsers = 3

// images lists those on the node, by name.
func (c *command) images(ctx context.Context) ([]messages.NodeImage, error) {
	all, err := base.Retry(ctx, timeout, func() (*api.Images, error) { return c.Client.Images(ctx) })
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(all.Images, func(x, y messages.NodeImage) int { return strings.Compare(tags(&x)[0], tags(&y)[0]) })
	return all.Images, nil
}

// pull pulls one image after another, and reports progress on stderr.
func (c *command) pull(ctx context.Context, args []string) error {
	var errs []error
	for _, image := range args {
		id, said, when := rand.Text(), "", c.Now()
		got, err := base.Retry(ctx, timeout, func() (*messages.ImageFetched, error) {
			got, err := c.Client.PullImage(ctx, id, image)
			switch {
			case err != nil:
				return got, err
			case got.Waiting == "" && got.ID == "" && got.Failed == "":
				return got, base.ErrBusy
			case got.Waiting == "":
				return got, nil
			}
			text, now := got.Waiting, c.Now()
			if text != said || now.Sub(when) >= progressEvery {
				said, when = text, now
				if since := now.Sub(got.Since); since >= time.Second {
					text += ", for " + duration.HumanDuration(since)
				}
				c.Note(text)
			}
			return got, base.ErrGoesOn
		})
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("%s: %w", image, err))
		case got.Failed != "":
			text := got.Failed
			if got.Remedy != "" {
				text += "; " + got.Remedy
			}
			errs = append(errs, errors.New(cli.Plain(text)))
		default:
			fmt.Fprintf(c.Out, "%s pulled, ID %s, in %s\n", image, short(got.ID), got.Took.Round(time.Millisecond))
		}
	}
	return errors.Join(errs...)
}

// find gives the images that a person means.
func find(all []messages.NodeImage, arg string) []*messages.NodeImage {
	full := arg
	if named, err := reference.ParseNormalizedNamed(arg); err == nil {
		full = reference.TagNameOnly(named).String()
	}
	var byName, byID []*messages.NodeImage
	for i := range all {
		img := &all[i]
		refs := slices.Concat(img.Tags, img.Digests)
		switch {
		case img.ID == arg || slices.Contains(refs, arg) || slices.Contains(refs, full):
			byName = append(byName, img)
		case len(arg) >= 4 && strings.HasPrefix(strings.TrimPrefix(img.ID, "sha256:"), strings.TrimPrefix(arg, "sha256:")):
			byID = append(byID, img)
		}
	}
	if len(byName) > 0 {
		return byName
	}
	return byID
}

// tags are an image's tags in their short form or, without any, its digests, or its ID.
func tags(img *messages.NodeImage) []string {
	refs := img.Tags
	if len(refs) == 0 {
		refs = img.Digests
	}
	var out []string
	for _, ref := range refs {
		if named, err := reference.ParseNormalizedNamed(ref); err == nil {
			ref = reference.FamiliarString(named)
		}
		out = append(out, cli.Plain(ref))
	}
	if len(out) == 0 {
		return []string{short(img.ID)}
	}
	return out
}

func short(id string) string {
	id = strings.TrimPrefix(id, "sha256:")
	return id[:min(len(id), shortID)]
}

func lastUsed(img *messages.NodeImage, now time.Time) string {
	switch {
	case len(img.Users) > 0:
		return "now"
	case img.Used.IsZero() || img.Pinned:
		return ">" + duration.HumanDuration(max(now.Sub(img.Since), 0))
	}
	return duration.HumanDuration(max(now.Sub(img.Used), 0)) + " ago"
}

// usersText names the pods, each once.
func usersText(users []messages.ImageUser) string {
	var out []string
	for _, u := range users {
		name := u.Namespace + "/" + u.Pod
		if u.Pod == "" {
			name = "container " + cmp.Or(u.Container, "without a name")
		}
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return cli.Plain(strings.Join(out, ", "))
}

// bytesText is a size as other tools for images print it, in powers of ten.
func bytesText(n uint64) string {
	units := []string{"B", "kB", "MB", "GB", "TB"}
	f, i := float64(n), 0
	for f >= 1000 && i < len(units)-1 {
		f, i = f/1000, i+1
	}
	if i == 0 {
		return fmt.Sprintf("%d%s", n, units[i])
	}
	return fmt.Sprintf("%.3g%s", f, units[i])
}

// printObjects prints the images as a list of objects, for the printers of objects.
func printObjects(out io.Writer, all []messages.NodeImage, print cli.ObjectPrinter) error {
	list := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "v1", "kind": "List"}}
	for i := range all {
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&all[i])
		if err != nil {
			return err
		}
		u := unstructured.Unstructured{Object: fields}
		u.SetAPIVersion("v1")
		u.SetKind("Image")
		u.SetName(all[i].ID)
		list.Items = append(list.Items, u)
	}
	return print(out, list)
}
