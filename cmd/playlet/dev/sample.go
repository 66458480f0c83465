package dev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/playlet-dev/playlet/actors/server/admin"
	"github.com/playlet-dev/playlet/config"
)

// sampleTime bounds the wait for the sample pod. Nothing comes from a network.
const sampleTime = 3 * time.Minute

// awaitSample waits until the sample pod runs and answers. Where the user has put manifests of their own in its place,
// there is nothing to wait for.
func (n *node) awaitSample(ctx context.Context, waiting func(string)) (string, error) {
	if _, err := os.Stat(n.folder.samplePath()); err != nil {
		if n.plan.Once {
			return "", fmt.Errorf("there is nothing to check: no %s", n.folder.samplePath())
		}
		return "none: there are manifests of yours", nil
	}
	ctx, cancel := context.WithTimeout(ctx, sampleTime)
	defer cancel()
	ip := ""
	last := "not seen yet"
	err := n.watch(ctx, func(now *admin.Pods) error {
		for i := range now.Pods {
			p := &now.Pods[i]
			if p.Pod.Name != sampleName+"-"+n.agent.NodeName {
				continue
			}
			last = n.Status(p)
			waiting(last)
			if ready(p) {
				ip = p.Pod.Status.PodIP
				return errSeen
			}
		}
		return nil
	})
	if !errors.Is(err, errSeen) {
		return "", errors.Join(err, fmt.Errorf("it does not get ready: %s", last))
	}
	url := fmt.Sprintf("http://%s:%d/", ip, samplePort)
	answer, err := get(ctx, url)
	if err != nil {
		return "", fmt.Errorf("it runs and cannot be reached: %w", err)
	}
	n.url = url
	return fmt.Sprintf("%s says %q", url, strings.TrimSpace(answer)), nil
}

func ready(p *admin.Pod) bool {
	if p.Pod.Status.PodIP == "" {
		return false
	}
	for _, c := range p.Pod.Status.Conditions {
		if c.Type == "Ready" {
			return c.Status == "True"
		}
	}
	return false
}

// get asks the pod, again while its program is about to listen.
func get(ctx context.Context, url string) (string, error) {
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}} // and no proxy
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		text, err := getOnce(ctx, &client, url)
		if err == nil {
			return text, nil
		}
		select {
		case <-ctx.Done():
			return "", err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func getOnce(ctx context.Context, client *http.Client, url string) (text string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 4096))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, resp.Status)
	}
	return string(body), err
}

// directions tell a newcomer where to go from here.
func (n *node) directions() string {
	self := calledAs()
	pods := self + " pods -w"
	if n.plan.AdminSocket != config.DefaultAdminSocket {
		pods += " --admin-socket=" + n.plan.AdminSocket
	}
	kept := "; they stay when this ends"
	if n.plan.Temporary {
		kept = "; they go when this ends, --dir keeps them"
	}
	var out strings.Builder
	row := func(what, how string) { fmt.Fprintf(&out, "  %-22s %s\n", what, how) }
	out.WriteString("\n")
	if n.url != "" {
		row("Reach the sample pod:", "curl "+n.url)
	}
	row("See pods, and why:", pods)
	row("Run more of them:", "put manifests into "+n.folder.manifests()+kept)
	row("Ask containerd:", "crictl --runtime-endpoint unix://"+n.folder.at(containerdSock)+" ps")
	row("Logs:", n.folder.at(agentLog)+", "+containerdLog+" beside it")
	row("End it:", "Ctrl-C")
	return out.String()
}

// calledAs is how the user may call this program again.
func calledAs() string {
	self, err := os.Executable()
	if err != nil {
		return "playlet"
	}
	if strings.Contains(self, "/go-build") { // it is gone when go run ends
		return "go run ./cmd/playlet"
	}
	found, err := exec.LookPath("playlet")
	if err != nil {
		return self
	}
	a, err1 := os.Stat(self)
	b, err2 := os.Stat(found)
	if err1 != nil || err2 != nil || !os.SameFile(a, b) {
		return self
	}
	return "playlet"
}
