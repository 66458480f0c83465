package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/playlet-dev/playlet/actors/registration"
	"github.com/playlet-dev/playlet/actors/resources"
	"github.com/playlet-dev/playlet/config"
)

// checkMachine refuses a machine that the configuration does not allow: as the kubelet, the agent does not start on it then.
func checkMachine(node *config.Node, unified bool, procfs, sysfs string) error {
	if err := node.CheckCgroups(unified); err != nil {
		return err
	}
	if err := node.CheckCPUs(resources.OnlineCPUs(sysfs)); err != nil {
		return err
	}
	areas, err := resources.Swaps(procfs)
	if err != nil {
		return fmt.Errorf("whether this host swaps: %w", err)
	}
	if err := node.CheckSwap(areas); err != nil {
		return err
	}
	differ, err := resources.DifferingSysctls(procfs)
	if node.Kubelet.ProtectKernelDefaults && err != nil {
		return fmt.Errorf("protectKernelDefaults: %w", err)
	}
	var names []string
	for _, s := range differ {
		names = append(names, fmt.Sprintf("%s is %d and not %d", s.Name, s.Is, s.Want))
	}
	return node.CheckSysctls(names)
}

// checkReserved refuses a configuration that keeps more from pods than the machine has.
func checkReserved(node *config.Node, machine registration.Machine) error {
	s := sizes(node)
	capacity := s.Capacity(machine)
	var errs []error
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage} {
		have, known := capacity[name]
		if reserved := s.Reserved(name, have); known && !have.IsZero() && reserved.Cmp(have) > 0 {
			errs = append(errs, fmt.Errorf("systemReserved, kubeReserved and evictionHard keep %s of %s from pods, and this "+
				"host has %s",
				&reserved, name, &have))
		}
	}
	return errors.Join(errs...)
}

// prepareMachine sets what of the machine, and of this process, is to be as the kubelet has it. What the host refuses is said,
// and keeps no pod from running.
func prepareMachine(node *config.Node, procfs string, log *slog.Logger) {
	differ, err := resources.DifferingSysctls(procfs)
	errs := []error{err}
	for _, s := range differ {
		if err := s.Set(procfs); err != nil {
			errs = append(errs, err)
			continue
		}
		log.Info("changed a setting of the kernel, as protectKernelDefaults is false", "name", s.Name, "was", s.Is,
			"value", s.Want)
	}
	if err := errors.Join(errs...); err != nil {
		log.Warn("the kernel's settings are not as Kubernetes wants them, and cannot be changed", "reason", err)
	}
	if err := setOOMScore(procfs, int(ptr.Deref(node.Kubelet.OOMScoreAdj, 0))); err != nil {
		log.Warn("the agent may be ended for want of memory before pods are: its oomScoreAdj is refused", "reason", err)
	}
}

// setOOMScore sets the oom_score_adj of this process and of those that it starts.
func setOOMScore(procfs string, want int) error {
	file := filepath.Join(procfs, "self/oom_score_adj")
	text, err := os.ReadFile(file)
	if err != nil || strings.TrimSpace(string(text)) == strconv.Itoa(want) {
		return err
	}
	return os.WriteFile(file, []byte(strconv.Itoa(want)), 0)
}
