package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

const govulncheck = "golang.org/x/vuln/cmd/govulncheck@v1.8.0"

// vulnerabilities runs govulncheck, or reports that its database is unreachable. It is not part of `task test`: its result
// depends on the day, not on the change.
func vulnerabilities(ctx context.Context, out io.Writer) (tally, error) {
	if err := databaseAnswers(ctx); err != nil {
		fmt.Fprintln(out, "not checked: the vulnerability database cannot be reached:", err)
		return tally{skipped: 1}, nil
	}
	return command(plain, "go", "run", govulncheck, "./...")(ctx, out)
}

// databaseAnswers requests the index of govulncheck's database ($GOVULNDB).
func databaseAnswers(ctx context.Context) error {
	db := os.Getenv("GOVULNDB")
	if strings.HasPrefix(db, "file:") {
		return nil
	}
	if db == "" {
		db = "https://vuln.go.dev"
	}
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, strings.TrimSuffix(db, "/")+"/index/db.json", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	if err := resp.Body.Close(); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", db, resp.Status)
	}
	return nil
}
