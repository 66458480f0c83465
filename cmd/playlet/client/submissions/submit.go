package submissions

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/actors/sources/submit"
	"github.com/playlet-dev/playlet/cmd/playlet/cli"
	"github.com/playlet-dev/playlet/cmd/playlet/client/base"
	"github.com/playlet-dev/playlet/messages"
)

func (c *submitCommand) submitAll(ctx context.Context) error {
	failed := 0
	files, err := manifestFiles(c.files)
	if err != nil {
		return err
	}
	c.files = files
	for _, file := range c.files {
		if err := c.submit(ctx, file); err != nil {
			if len(c.files) == 1 || errors.Is(err, api.ErrNotRunning) {
				return err
			}
			c.Note(messages.OneLine(err))
			failed++
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d manifests were not accepted", failed, len(c.files))
	}
	if c.differs {
		return &cli.ExitError{Code: 1}
	}
	return nil
}

func (c *submitCommand) submit(ctx context.Context, file string) error {
	data, err := c.read(ctx, file)
	if err != nil {
		return err
	}
	if c.skip {
		if data = c.supported(data); len(bytes.TrimSpace(data)) == 0 {
			return nil
		}
	}
	parts, err := submit.Batches(shownName(file), data, maxDocuments)
	if err != nil {
		return err
	}
	check := c.diff || c.dryRun != "none" && c.dryRun != ""
	if len(parts) > 1 && !check { // all of a manifest is accepted, or nothing
		if err := c.checkParts(ctx, file, parts); err != nil {
			return err
		}
	}
	for i, part := range parts {
		if err := c.submitPart(ctx, file, part.Text(), check); err != nil {
			return err
		}
		c.progressOf(file, "submitted", i, len(parts))
	}
	return nil
}

// supported omits the documents that a node does not run, with a line for each.
func (c *submitCommand) supported(data []byte) []byte {
	data, skipped := submit.WithoutUnsupported(data)
	for _, s := range skipped {
		c.Note(fmt.Sprintf("%s %s skipped: it is not something a node runs", s.Kind, cmp.Or(s.Name, "without a name")))
	}
	return data
}

// maxDocuments is how many documents are submitted at a time. Other commands have their turn in between.
const maxDocuments = 100

// progressOf reports the progress of a long manifest.
func (c *submitCommand) progressOf(file, done string, i, parts int) {
	if parts > 1 {
		c.Note(fmt.Sprintf("%s: %s %d%%", shownName(file), done, (i+1)*100/parts))
	}
}

// checkParts has the agent check all parts before one of them is submitted.
func (c *submitCommand) checkParts(ctx context.Context, file string, parts []submit.Batch) error {
	pods := map[string]bool{}
	for i, part := range parts {
		found, err := base.Retry(ctx, startTimeout, func() (*api.SubmitReply, error) { return c.Client.DryRun(ctx, part.Text()) })
		if refused, ok := errors.AsType[*api.Error](err); ok {
			return c.refusal(file, refused)
		} else if err != nil {
			return fmt.Errorf("%s: %w; nothing of it was submitted", shownName(file), err)
		}
		for _, p := range found.Pods {
			if name := p.Namespace + "/" + p.Name; p.Kind == "" && pods[name] {
				return fmt.Errorf("%s has two pods %s; nothing of it was submitted", shownName(file), name)
			} else if p.Kind == "" {
				pods[name] = true
			}
		}
		c.progressOf(file, "checked", i, len(parts))
	}
	return nil
}

func (c *submitCommand) submitPart(ctx context.Context, file string, data []byte, check bool) error {
	submitted, err := base.Retry(ctx, startTimeout, func() (*api.SubmitReply, error) {
		if check {
			return c.Client.DryRun(ctx, data)
		}
		return c.Client.Submit(ctx, data, true)
	})
	var refused *api.Error
	switch {
	case err == nil && c.diff:
		return c.sayDiff(submitted.Pods)
	case err == nil:
		c.say(submitted.Pods)
		return nil
	case errors.As(err, &refused):
		c.say(refused.Accepted)
		return c.refusal(file, refused)
	case errors.Is(err, api.ErrNotRunning):
		return err
	default:
		return fmt.Errorf("%s: %w; the agent may still apply what it has received: running the same again settles it",
			shownName(file), err)
	}
}

// refusal names file, line and field of each problem.
func (c *submitCommand) refusal(file string, refused *api.Error) error {
	if len(refused.Problems) == 0 {
		return fmt.Errorf("%s: %w", shownName(file), refused)
	}
	for _, p := range refused.Problems {
		p.Path = shownName(file)
		c.Note(api.ProblemText(p))
	}
	if slices.ContainsFunc(refused.Problems, func(p messages.ManifestProblem) bool { return p.Field == "kind" }) {
		return fmt.Errorf("%s was refused, and none of it is run (--skip-unsupported leaves out what a node does not run)",
			shownName(file))
	}
	return fmt.Errorf("%s was refused, and none of it is run", shownName(file))
}
