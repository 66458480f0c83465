package dev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cmd/playlet/cli"
	"github.com/playlet-dev/playlet/cmd/playlet/dev/namespaces"
	"github.com/playlet-dev/playlet/config"
)

// sampleTime bounds the wait for the sample pod. Nothing comes from a network.
const sampleTime = 3 * time.Minute

// awaitSample waits until the sample pod runs and answers. Where the user has put manifests of their own in its place,
// there is nothing to wait for.
func (n *node) awaitSample(ctx context.Context, waiting func(string)) (string, error) {
	if text, err := os.ReadFile(n.folder.samplePath()); err != nil || string(text) != sampleManifest {
		if n.plan.Once {
			return "", fmt.Errorf("there is nothing to check: %s holds manifests of yours and no sample pod",
				n.folder.manifests())
		}
		return "none: there are manifests of yours", nil
	}
	ctx, cancel := context.WithTimeout(ctx, sampleTime)
	defer cancel()
	url := ""
	last := "not seen yet"
	err := n.watch(ctx, func(now *api.Pods) error {
		p := n.sample(now)
		if p == nil {
			return nil
		}
		last = n.Status(p)
		waiting(last)
		if ready(p) {
			url = sampleURL(p)
			return errSeen
		}
		return nil
	})
	if !errors.Is(err, errSeen) {
		return "", errors.Join(err, fmt.Errorf("it does not get ready: %s", last))
	}
	answer, err := get(ctx, url)
	if err != nil {
		return "", fmt.Errorf("it runs and cannot be reached: %w", err)
	}
	n.url = url
	return fmt.Sprintf("%s says %q", url, strings.TrimSpace(answer)), nil
}

// sample finds the sample pod; nil when it is not there.
func (n *node) sample(now *api.Pods) *api.Pod {
	for i := range now.Pods {
		if now.Pods[i].Pod.Name == sampleName+"-"+n.agent.NodeName {
			return &now.Pods[i]
		}
	}
	return nil
}

func sampleURL(p *api.Pod) string {
	return fmt.Sprintf("http://%s/", net.JoinHostPort(p.Pod.Status.PodIP, strconv.Itoa(samplePort)))
}

func ready(p *api.Pod) bool {
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
	ctx, cancel := context.WithTimeout(ctx, kernelTimeout)
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

// directions returns the next steps for a new user.
func (n *node) directions() string {
	kept := "; they stay when this ends"
	if n.plan.Temporary {
		kept = "; they go when this ends, --dir keeps them"
	}
	var out strings.Builder
	row := func(what, how string) { fmt.Fprintf(&out, "  %-22s %s\n", what, how) }
	out.WriteString("\n")
	if n.page != "" {
		row("The web page:", n.page)
	}
	if alias := n.alias(); alias != "" {
		row("In another terminal:", alias)
	}
	if n.url != "" {
		row(reach, fetch(n.url))
		row("Follow its log:", n.command("logs", "-f", sampleName))
		if n.plan.Programs.Busybox != "" {
			row("A shell in it:", n.command("exec", "-it", sampleName, "--", "sh"))
		} else {
			row("A command in it:", n.command("exec", sampleName, "--", "hello", "env"))
		}
	}
	row("See pods, and why:", n.command("pods", "-w"))
	row("Add a pod that fails:", n.command("run", "-f", n.folder.at(brokenFile)))
	row("Explain the failure:", n.command("explain", "broken"))
	row("Heal it:", n.command("run", "-f", n.folder.at(greetingFile)))
	if n.url != "" {
		row("Trace a start:", n.command("trace", sampleName))
	}
	if n.url != "" && !n.plan.NoChaos {
		row("Break its actor:", n.command("chaos", "kill", "pods/"+sampleName))
	}
	row("Run more of them:", "put manifests into "+n.folder.manifests()+kept)
	row("Ask containerd:", asRoot(n.askRuntime()))
	row("Logs:", n.folder.at(agentLog)+", "+containerdLog+" beside it")
	row("End it:", "Ctrl-C")
	return out.String()
}

const reach = "Reach the sample pod:"

// fetch returns a command of this machine that prints the response of an address, or only the address, for a browser, if there
// is none.
func fetch(url string) string {
	for _, command := range []string{"curl ", "wget -qO- "} {
		if _, err := exec.LookPath(strings.Fields(command)[0]); err == nil {
			return command + url
		}
	}
	return url
}

// alias lets the printed commands be short; empty where "playlet" alone is this program and finds the agent.
func (n *node) alias() string {
	called := calledAs()
	if n.plan.AdminSocket == config.DefaultAdminSocket && called == "playlet" {
		return ""
	}
	words := []string{called}
	if n.plan.AdminSocket != config.DefaultAdminSocket {
		words = []string{"env", cli.SocketVariable + "=" + n.plan.AdminSocket, called}
	}
	return "alias playlet=" + quoted(asRoot(words))
}

// command is one of this program's that asks the agent, with the alias in force.
func (n *node) command(args ...string) string {
	words := append([]string{"playlet"}, args...)
	if n.alias() == "" {
		return asRoot(words)
	}
	return typed(words)
}

// askRuntime returns a command that lists containers: crictl's, or else that of containerd's own client.
func (n *node) askRuntime() []string {
	socket := n.folder.containerd().Socket()
	if _, err := exec.LookPath("crictl"); err == nil {
		return []string{"crictl", "--runtime-endpoint", "unix://" + socket, "ps"}
	}
	ctr := filepath.Join(filepath.Dir(n.plan.Programs.Containerd), "ctr")
	if found, err := exec.LookPath("ctr"); err == nil && namespaces.SameFile(ctr, found) {
		ctr = "ctr"
	}
	return []string{ctr, "--address", socket, "--namespace", "k8s.io", "containers", "list"}
}

// asRoot is a command as the user can type it: with sudo where that is how this program was started.
func asRoot(args []string) string {
	if os.Getenv("SUDO_UID") != "" {
		args = append([]string{"sudo"}, args...)
	}
	return typed(args)
}

// typed is a command line as a shell reads it.
func typed(args []string) string {
	out := make([]string, len(args))
	for i, arg := range args {
		out[i] = quoted(arg)
	}
	return strings.Join(out, " ")
}

// quoted quotes an argument that a shell would split.
func quoted(arg string) string {
	if arg != "" && !strings.ContainsFunc(arg, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("/.,:=_-+@%", r)
	}) {
		return arg
	}
	return "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
}

// calledAs is how the user may call this program again.
func calledAs() string {
	self, err := os.Executable()
	if err != nil {
		return "playlet"
	}
	found, err := exec.LookPath("playlet")
	if err == nil && namespaces.SameFile(self, found) {
		return "playlet"
	}
	return self
}
