package images

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cmd/playlet/cli"
	"github.com/playlet-dev/playlet/cmd/playlet/client/base"
	"github.com/playlet-dev/playlet/messages"
)

// remove removes the images that are named, each with all its tags.
func (c *command) remove(ctx context.Context, args []string) error {
	all, err := c.images(ctx)
	if err != nil {
		return err
	}
	var chosen []*messages.NodeImage
	for _, arg := range args {
		found := find(all, arg)
		switch {
		case len(found) == 0:
			err = errors.Join(err, fmt.Errorf("there is no image %q on this node (playlet images lists them)", arg))
		case len(found) > 1:
			err = errors.Join(err, fmt.Errorf("several images have an ID that begins with %s", arg))
		case !slices.Contains(chosen, found[0]):
			chosen = append(chosen, found[0])
		}
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, img := range chosen {
		if _, err := c.removeOne(ctx, img, false); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (c *command) removeOne(ctx context.Context, img *messages.NodeImage, collect bool) (freed uint64, err error) {
	name := strings.Join(tags(img), ", ")
	got, err := base.Retry(ctx, timeout, func() (*messages.ImageRemoved, error) {
		got, err := c.Client.RemoveImage(ctx, img.ID, collect)
		if err == nil && got.Busy {
			err = base.ErrBusy
		}
		return got, err
	})
	switch {
	case err != nil:
		return 0, fmt.Errorf("%s: %w", name, err)
	case got.Kept != "":
		why := got.Kept
		if by := usersText(got.Users); by != "" {
			why += ": " + by
		}
		return 0, &staysError{fmt.Sprintf("%s stays: %s", name, cli.Plain(why))}
	}
	fmt.Fprintf(c.Out, "%s removed, ID %s, %s\n", name, short(img.ID), bytesText(img.Size))
	return img.Size, nil
}

// staysError is why one image was not removed.
type staysError struct{ text string }

func (e *staysError) Error() string { return e.text }

// prune removes one image after another by the rules of the collection; each is looked at again before.
func (c *command) prune(ctx context.Context, dry bool) error {
	all, err := c.images(ctx)
	if err != nil {
		return err
	}
	var freed, removed uint64
	for i := range all {
		img := &all[i]
		switch {
		case img.Kept != "":
			continue
		case dry:
			fmt.Fprintf(c.Out, "%s would be removed, ID %s, %s, last used %s\n", strings.Join(tags(img), ", "), short(img.ID),
				bytesText(img.Size), lastUsed(img, c.Now()))
			freed += img.Size
		default:
			size, err := c.removeOne(ctx, img, true)
			if _, stays := errors.AsType[*staysError](err); stays { // it is used since, or the runtime refuses: the others may go
				c.Note(messages.OneLine(err))
				continue
			}
			if err != nil {
				return err
			}
			freed += size
		}
		removed++
	}
	verb := "removed"
	if dry {
		verb = "would be removed"
	}
	fmt.Fprintf(c.Out, "%d of %d images %s, %s freed at most\n", removed, len(all), verb, bytesText(freed))
	return ctx.Err()
}

// removable are the names of images that may go.
func removable(ctx context.Context, client *api.Client, _ []string) (out []string) {
	all, err := client.Images(ctx)
	if err != nil {
		return nil
	}
	for i := range all.Images {
		if img := &all.Images[i]; len(img.Users) == 0 && !img.Pinned {
			out = append(out, tags(img)[0])
		}
	}
	return out
}
