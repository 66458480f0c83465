package stack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// UIDLabel is the label that the kubelet, and the agent, put the pod's UID into.
const UIDLabel = "io.kubernetes.pod.uid"

// CRI is the runtime's API as it is, with none of the agent's own client in between.
type CRI struct {
	runtimeapi.RuntimeServiceClient
	runtimeapi.ImageServiceClient
	conn *grpc.ClientConn
}

func dial(socket string) (*CRI, error) {
	quick := backoff.DefaultConfig
	quick.BaseDelay, quick.MaxDelay = quick.BaseDelay/100, quick.BaseDelay/10
	conn, err := grpc.NewClient("unix://"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: quick}))
	if err != nil {
		return nil, err
	}
	return &CRI{runtimeapi.NewRuntimeServiceClient(conn), runtimeapi.NewImageServiceClient(conn), conn}, nil
}

// Close ends the connection.
func (c *CRI) Close() error { return c.conn.Close() }

// RemovePods stops and removes each sandbox of the runtime behind the socket, with its containers and its network.
func RemovePods(ctx context.Context, socket string) error {
	c, err := dial(socket)
	if err != nil {
		return err
	}
	all, err := c.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	errs := []error{err}
	for _, s := range all.GetItems() {
		_, stopErr := c.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: s.Id})
		_, err := c.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: s.Id})
		errs = append(errs, stopErr, err)
	}
	return errors.Join(append(errs, c.Close())...)
}

// Sandboxes lists every sandbox that the runtime knows, ready or not.
func (s *Stack) Sandboxes(ctx context.Context) ([]*runtimeapi.PodSandbox, error) {
	resp, err := s.client.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	return resp.GetItems(), err
}

// SandboxesOf lists the sandboxes of a pod.
func (s *Stack) SandboxesOf(ctx context.Context, podUID string) ([]*runtimeapi.PodSandbox, error) {
	resp, err := s.client.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{
		Filter: &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{UIDLabel: podUID}},
	})
	return resp.GetItems(), err
}

// Containers lists every container that the runtime knows, whatever its state.
func (s *Stack) Containers(ctx context.Context) ([]*runtimeapi.Container, error) {
	resp, err := s.client.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	return resp.GetContainers(), err
}

// ContainersOf lists the containers of a pod.
func (s *Stack) ContainersOf(ctx context.Context, podUID string) ([]*runtimeapi.Container, error) {
	resp, err := s.client.ListContainers(ctx, &runtimeapi.ListContainersRequest{
		Filter: &runtimeapi.ContainerFilter{LabelSelector: map[string]string{UIDLabel: podUID}},
	})
	return resp.GetContainers(), err
}

// Pull pulls an image and gives its ID.
func (s *Stack) Pull(ctx context.Context, ref string) (string, error) {
	resp, err := s.client.PullImage(ctx, &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: ref}})
	return resp.GetImageRef(), err
}

// PodIP gives the address of a sandbox, empty for one in the host's network.
func (s *Stack) PodIP(ctx context.Context, sandboxID string) (string, error) {
	resp, err := s.client.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: sandboxID})
	return resp.GetStatus().GetNetwork().GetIp(), err
}

// RemoveSandbox kills and removes a sandbox with its containers; one that is gone is no error.
func (s *Stack) RemoveSandbox(ctx context.Context, id string) error {
	_, err := s.client.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id})
	if err != nil && status.Code(err) != codes.NotFound {
		return fmt.Errorf("stop sandbox %s: %w", id, err)
	}
	_, err = s.client.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
	if err != nil && status.Code(err) != codes.NotFound {
		return fmt.Errorf("remove sandbox %s: %w", id, err)
	}
	return nil
}

// SandboxPID gives the process ID of a sandbox's pause program.
func (s *Stack) SandboxPID(ctx context.Context, sandboxID string) (int, error) {
	resp, err := s.client.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: sandboxID, Verbose: true})
	if err != nil {
		return 0, err
	}
	return infoPID(resp.GetInfo())
}

// ContainerPID gives the process ID of a running container's first process.
func (s *Stack) ContainerPID(ctx context.Context, containerID string) (int, error) {
	resp, err := s.client.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: containerID, Verbose: true})
	if err != nil {
		return 0, err
	}
	return infoPID(resp.GetInfo())
}

// infoPID reads the PID in containerd's verbose answer.
func infoPID(info map[string]string) (int, error) {
	var more struct {
		PID int `json:"pid"`
	}
	if err := json.Unmarshal([]byte(info["info"]), &more); err != nil {
		return 0, fmt.Errorf("verbose info: %w", err)
	}
	if more.PID == 0 {
		return 0, errors.New("there is no process")
	}
	return more.PID, nil
}

// KillSandboxProcess kills the pause program of the ready sandbox of a pod with SIGKILL.
func (s *Stack) KillSandboxProcess(ctx context.Context, podUID string) error {
	sandboxes, err := s.SandboxesOf(ctx, podUID)
	if err != nil {
		return err
	}
	for _, sandbox := range sandboxes {
		if sandbox.State != runtimeapi.PodSandboxState_SANDBOX_READY {
			continue
		}
		pid, err := s.SandboxPID(ctx, sandbox.Id)
		if err != nil {
			return err
		}
		return syscall.Kill(pid, syscall.SIGKILL)
	}
	return fmt.Errorf("pod %s has no ready sandbox", podUID)
}

// Logs returns the output of a container, stdout and stderr, without the runtime's prefixes.
func (s *Stack) Logs(ctx context.Context, containerID string) (string, error) {
	resp, err := s.client.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: containerID})
	if err != nil {
		return "", err
	}
	data, err := os.ReadFile(resp.GetStatus().GetLogPath())
	if err != nil {
		return "", err
	}
	return plainLog(string(data)), nil
}

// plainLog undoes the CRI log format: "time stream tag text", where the tag P marks a part that the next line goes on.
func plainLog(log string) string {
	var out strings.Builder
	for line := range strings.Lines(log) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 4)
		if len(fields) < 4 {
			continue
		}
		out.WriteString(fields[3])
		if fields[2] != "P" {
			out.WriteByte('\n')
		}
	}
	return out.String()
}
