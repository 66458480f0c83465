package container

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/playlet-dev/playlet/actors/internal/host"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// maxHookBody bounds what is read of a hook's HTTP response.
const maxHookBody = 10 << 10

// preStop is the container's pre-stop hook: of its spec or, where that is gone, of the annotations it was made with.
func preStop(m messages.StopContainer) *v1.LifecycleHandler {
	if m.Spec != nil {
		if m.Spec.Lifecycle == nil {
			return nil
		}
		return m.Spec.Lifecycle.PreStop
	}
	info, err := cri.ParseContainer(nil, m.Fact.Annotations)
	if err != nil && info.PreStop == nil {
		return nil // what cannot be read cannot be run; the container is stopped all the same
	}
	return info.PreStop
}

// runHook runs a pre-stop hook to its end, or to the context's, and says in the log where it failed.
func runHook(ctx context.Context, h *host.Host, m messages.StopContainer, hook *v1.LifecycleHandler) error {
	err := callHook(ctx, h, m, hook)
	if err != nil {
		log := supervisors.LogOf(ctx)
		if m.Pod != nil {
			log = log.With("namespace", m.Pod.Namespace, "pod", m.Pod.Name)
		}
		log.Warn("pre-stop hook failed; the container is stopped all the same",
			"container", m.Name, "id", m.Fact.ID, "error", firstBytes([]byte(err.Error())))
	}
	return err
}

func callHook(ctx context.Context, h *host.Host, m messages.StopContainer, hook *v1.LifecycleHandler) error {
	switch {
	case hook.Exec != nil:
		// It spends the grace period, which runs while others have the slots: it takes none.
		result, err := h.CRI.ExecSync(cri.WithoutSlot(ctx), m.Fact.ID, hook.Exec.Command, m.Grace)
		if err != nil {
			return err
		}
		if result.ExitCode != 0 {
			return fmt.Errorf("the command ended with code %d: %s", result.ExitCode, firstBytes(result.Stderr))
		}
		return nil
	case hook.HTTPGet != nil:
		return runHTTP(ctx, m, hook.HTTPGet)
	case hook.Sleep != nil:
		t := time.NewTimer(time.Duration(hook.Sleep.Seconds) * time.Second)
		defer t.Stop()
		select {
		case <-t.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	default:
		return errors.New("it has no action")
	}
}

// firstBytes is the beginning of what an application or the runtime said: enough to know what is meant.
func firstBytes(b []byte) string {
	const limit = 256
	return strings.ToValidUTF8(strings.TrimSpace(string(b[:min(len(b), limit)])), "")
}

// runHTTP makes the hook's request. The hook is the application's own, so certificates are not verified, as with the
// kubelet; redirects are not followed to other hosts.
func runHTTP(ctx context.Context, m messages.StopContainer, get *v1.HTTPGetAction) error {
	target, err := hookURL(m, get)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return err
	}
	req.Header.Set("User-Agent", "kube-lifecycle/playlet")
	req.Header.Set("Accept", "*/*")
	for _, header := range get.HTTPHeaders {
		if strings.EqualFold(header.Name, "Host") {
			req.Host = header.Value
			continue
		}
		req.Header.Add(header.Name, header.Value)
	}
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // the pod's own endpoint, by its address
		DisableKeepAlives: true, Proxy: nil,
	}
	defer transport.CloseIdleConnections()
	client := http.Client{Transport: transport, CheckRedirect: func(r *http.Request, via []*http.Request) error {
		if r.URL.Hostname() != via[0].URL.Hostname() || len(via) >= 10 {
			return http.ErrUseLastResponse
		}
		return nil
	}}
	place := (&url.URL{Scheme: target.Scheme, Host: target.Host, Path: target.Path}).String() // a query may hold a secret
	resp, err := client.Do(req)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err // without the whole URL
		}
		return fmt.Errorf("GET %s: %w", place, err)
	}
	_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, maxHookBody))
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return err
	}
	if resp.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("GET %s answered with code %d", place, resp.StatusCode)
	}
	return nil
}

func hookURL(m messages.StopContainer, get *v1.HTTPGetAction) (*url.URL, error) {
	address := get.Host
	if address == "" {
		if len(m.IPs) == 0 {
			return nil, errors.New("the pod has no address to send the request to")
		}
		address = m.IPs[0]
	}
	port, err := hookPort(m, get.Port)
	if err != nil {
		return nil, err
	}
	scheme := strings.ToLower(string(get.Scheme))
	if scheme == "" {
		scheme = "http"
	}
	u, err := url.Parse(get.Path)
	if err != nil {
		return nil, fmt.Errorf("path %q: %w", get.Path, err)
	}
	u.Scheme, u.Host = scheme, net.JoinHostPort(address, strconv.Itoa(port))
	return u, nil
}

func hookPort(m messages.StopContainer, p intstr.IntOrString) (int, error) {
	if p.Type == intstr.Int {
		return p.IntValue(), nil
	}
	ports := []v1.ContainerPort{}
	if m.Spec != nil {
		ports = m.Spec.Ports
	} else if info, err := cri.ParseContainer(nil, m.Fact.Annotations); err == nil || info.Ports != nil {
		ports = info.Ports
	}
	for _, c := range ports {
		if c.Name == p.StrVal {
			return int(c.ContainerPort), nil
		}
	}
	n, err := strconv.Atoi(p.StrVal)
	if err != nil {
		return 0, fmt.Errorf("the container has no port named %q", p.StrVal)
	}
	return n, nil
}
