package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// The ports of a cluster: nothing else listens in our network namespace.
func (c *Cluster) port(n int) int { return 16440 + 10*c.number + n }

func (c *Cluster) etcdURL() string { return fmt.Sprintf("http://127.0.0.1:%d", c.port(1)) }

func (c *Cluster) etcdDir() string { return filepath.Join(c.Dir, "etcd") }

func (c *Cluster) startEtcd() error {
	peer := fmt.Sprintf("http://127.0.0.1:%d", c.port(2))
	err := c.etcd.Start(c.command(c.parts.Etcd, "--name=e2e", "--data-dir="+c.etcdDir(), "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls="+c.etcdURL(), "--advertise-client-urls="+c.etcdURL(),
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=e2e="+peer))
	if err != nil {
		return err
	}
	return c.etcd.AwaitReady(func(ctx context.Context) error {
		_, err := c.revision(ctx)
		return err
	})
}

// KillEtcd kills etcd with SIGKILL and reaps it.
func (c *Cluster) KillEtcd() error {
	if err := c.own("killing etcd"); err != nil {
		return err
	}
	return c.etcd.End(syscall.SIGKILL)
}

// StartEtcd starts etcd again over the same data, and waits until it answers.
func (c *Cluster) StartEtcd() error { return c.startEtcd() }

// ask uses etcd's JSON gateway, which spares us its client.
func (c *Cluster) ask(ctx context.Context, path string, request, into any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.etcdURL()+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // read to the end
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("etcd: %s: %s: %s", path, resp.Status, answer)
	}
	return json.Unmarshal(answer, into)
}

// revision is the newest resource version that there is.
func (c *Cluster) revision(ctx context.Context) (string, error) {
	var answer struct {
		Header struct {
			Revision string `json:"revision"`
		} `json:"header"`
	}
	err := c.ask(ctx, "/v3/kv/range", map[string]any{"key": "AA==", "count_only": true}, &answer)
	if err == nil && answer.Header.Revision == "" {
		err = errors.New("etcd tells no revision")
	}
	return answer.Header.Revision, err
}

// Compact drops all history before now in etcd. Open watches of the server do not notice, as it caches the events in memory: see
// Forget.
func (c *Cluster) Compact(ctx context.Context) error {
	if err := c.own("compaction"); err != nil {
		return err
	}
	now, err := c.revision(ctx)
	if err != nil {
		return err
	}
	var answer struct{}
	return c.ask(ctx, "/v3/kv/compaction", map[string]any{"revision": now, "physical": true}, &answer)
}

// Forget is Compact and a restart of the server: a watch from any earlier resource version is answered with 410 Gone. A client
// with an open watch loses it, and may return with a resource version that is just recent enough: block it with a proxy (Refuse),
// and change an object that it watches, before.
func (c *Cluster) Forget(ctx context.Context) error {
	if err := c.KillAPIServer(); err != nil {
		return err
	}
	if err := c.Compact(ctx); err != nil {
		return err
	}
	return c.StartAPIServer()
}

// Save keeps the cluster as it is now, for GoBack. Etcd and the server are restarted.
func (c *Cluster) Save() error { return c.swap(c.etcdDir(), c.savedDir()) }

// GoBack restores the state at the call of Save, like a backup: objects are as they were, and the server's resource versions are
// older than those seen by its clients. Etcd and the server are restarted.
func (c *Cluster) GoBack() error { return c.swap(c.savedDir(), c.etcdDir()) }

func (c *Cluster) savedDir() string { return filepath.Join(c.Dir, "etcd.saved") }

func (c *Cluster) swap(from, to string) error {
	if err := c.KillAPIServer(); err != nil {
		return err
	}
	if err := c.etcd.End(syscall.SIGTERM); err != nil {
		return err
	}
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return err
	}
	if err := os.Chmod(to, 0o700); err != nil {
		return err
	}
	if err := c.startEtcd(); err != nil {
		return err
	}
	return c.StartAPIServer()
}
