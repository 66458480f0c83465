package main

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"slices"
	"strings"
)

// part is a named part of the suite. A spec belongs to the first part that takes it.
type part struct {
	name, about string
	// specs is a regular expression of names, files one of the suite's files without their suffix. One of them is empty.
	specs, files string
	args         []string // further flags of the suite
}

// suiteParts are all parts; the last one takes the remaining specs.
var suiteParts = []part{
	{name: "conformance", about: "node conformance", specs: `\[NodeConformance\]`},
	{name: "eviction", about: "eviction, critical pods, separate disks",
		files: "eviction_test|system_node_critical_test|split_disk_test|critical_pod_test"},
	{name: "garbage", about: "garbage collection of containers and images, log rotation",
		files: "garbage_collector_test|image_gc_test|image_id_test|container_log_rotation_test"},
	{name: "restart", about: "restarts of agent, runtime and node",
		files: "restart_test|unknown_pods_test|restart_all_containers_test|container_lifecycle_test|kubelet_config_dir_test|pod_status_test"},
	{name: "devices", about: "device plugins", files: "device_plugin_.*|device_manager_test"},
	{name: "pod-resources", about: "the APIs of pod resources and pods", files: "podresources_test|pods_api_test"},
	{name: "dra", about: "dynamic resource allocation", files: "dra_test"},
	{name: "resource-metrics", about: "metrics and the use of resources",
		files: "resource_metrics_test|resource_usage_test|summary_test|container_metrics_test|os_label_rename_test"},
	{name: "memory-qos", about: "memory QoS", files: "memory_qos_test"},
	{name: "swap", about: "swap", files: "swap_test"},
	{name: "shutdown", about: "graceful shutdown of the node", files: "node_shutdown_linux_test"},
	{name: "cpumanager", about: "CPU manager and topology manager", files: "cpu_manager_.*|topology_manager_.*"},
	{name: "memorymanager", about: "memory manager and huge pages", files: "memory_manager_.*|hugepages_test"},
	{name: "resize", about: "in-place resize, resources of pods", files: "pod_resize|pod_level_resources.*"},
	{name: "images", about: "pulls of images and their credentials, image volumes",
		files: "image_credential_.*|image_pull_test|image_volume|runtime_conformance_test"},
	{name: "criproxy", about: "faults of the runtime, made by the suite's proxy",
		files: "criproxy_test|pod_conditions_criproxy_linux_test|container_restart_test|cgroup_driver_from_cri_test",
		args:  []string{"--cri-proxy-enabled=true"}},
	{name: "standalone", about: "without an API server", files: "standalone_test", args: []string{"--standalone-mode=true"}},
	{name: "load", about: "density, performance, probes under load", files: "density_test|node_perf_test|probe_stress_test"},
	{name: "lock", about: "the agent's lock file", files: "lock_contention_linux_test",
		args: []string{"--kubelet-flags=--exit-on-lock-contention --lock-file=/var/run/kubelet.lock"}},
	{name: "node", about: "cgroups of the node, limits, user namespaces",
		files: "container_manager_test|node_container_manager_test|pids_test|oomkiller_linux_test|user_namespaces_test|" +
			"seccompdefault_test|proc_mount_test"},
	{name: "features", about: "all other specs", files: ".*"},
}

// spec is a test of the suite.
type spec struct{ name, file string }

func (p part) takes(s spec) bool {
	if p.specs != "" {
		return regexp.MustCompile(p.specs).MatchString(s.name)
	}
	return regexp.MustCompile(`/(` + p.files + `)\.go$`).MatchString(s.file)
}

// partOf returns the part to which a spec belongs.
func partOf(s spec) string {
	return suiteParts[slices.IndexFunc(suiteParts, func(p part) bool { return p.takes(s) })].name
}

func findPart(name string) (part, error) {
	i := slices.IndexFunc(suiteParts, func(p part) bool { return p.name == name })
	if i < 0 {
		return part{}, fmt.Errorf("there is no part %q of the suite: -list prints the parts", name)
	}
	return suiteParts[i], nil
}

// listed matches a line of the suite's list of tests: file, line, name.
var listed = regexp.MustCompile(`^\s*(\S+\.go):\d+: (.*)$`)

// listSpecs asks the suite for its specs. It runs none of them.
func listSpecs(ctx context.Context, tests string) (specs []spec, err error) {
	out, err := exec.CommandContext(ctx, tests, "--list-tests").Output()
	if err != nil {
		return nil, fmt.Errorf("list of tests: %w", err)
	}
	for line := range strings.Lines(string(out)) {
		if m := listed.FindStringSubmatch(strings.TrimRight(line, "\n")); m != nil {
			specs = append(specs, spec{m[2], m[1]})
		}
	}
	return specs, nil
}

// specsOf returns the names of a part's specs.
func specsOf(name string, all []spec) (names []string) {
	for _, s := range all {
		if partOf(s) == name {
			names = append(names, s.name)
		}
	}
	return names
}

func printParts(w io.Writer, all []spec) {
	for _, p := range suiteParts {
		fmt.Fprintf(w, "%-17s %4d  %s\n", p.name, len(specsOf(p.name, all)), p.about)
	}
	fmt.Fprintf(w, "%-17s %4d\n", "", len(all))
}

// exactly returns a regular expression that matches the names and no others, behind the description of the suite.
func exactly(names []string) string {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = regexp.QuoteMeta(n)
	}
	return ` (` + strings.Join(quoted, "|") + `)$`
}
