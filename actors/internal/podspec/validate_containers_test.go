package podspec

import (
	"strings"
	"testing"
)

func TestValidateContainers(t *testing.T) {
	const c = "spec.containers[0]."
	checkWrong(t, []wrong{
		{"two of one name", aPod("containers: [{name: a, image: b}, {name: a, image: b}]"),
			[]string{"spec.containers[1].name: Duplicate value"}},
		{"an init container of the same name", aPod("initContainers: [{name: main, image: b}]"),
			[]string{"spec.initContainers[0].name: Duplicate value"}},
		{"nameless", aPod("containers: [{image: b}]"), []string{c + "name: Required value"}},
		{"misnamed", aPod("containers: [{name: a.b, image: b}]"), []string{c + "name: Invalid value"}},
		{"no image", aPod("containers: [{name: a}]"), []string{c + "image: Required value"}},
		{"space in image", aPod("containers: [{name: a, image: ' b'}]"), []string{c + "image: Invalid value"}},
		{"pull policy", aContainer("imagePullPolicy: Often"), []string{c + "imagePullPolicy: Unsupported value"}},
		{"termination message", aContainer("terminationMessagePolicy: Shout"),
			[]string{c + "terminationMessagePolicy: Unsupported value"}},
		{"restart policy", aContainer("restartPolicy: Sometimes"), []string{c + "restartPolicy: Unsupported value"}},
		{"rules without policy", aContainer("restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [1]}}]"),
			[]string{c + "restartPolicy: Required value"}},
		{"rules", aContainer("restartPolicy: Never\nrestartPolicyRules: [{}, {action: Restart, exitCodes: {operator: Is}}]"),
			[]string{c + "restartPolicyRules[0].action: Required value",
				c + "restartPolicyRules[0].exitCodes: Required value",
				c + "restartPolicyRules[1].exitCodes.operator: Unsupported value"}},
		{"resize policy", aContainer("resizePolicy: [{resourceName: disk, restartPolicy: NotRequired}, " +
			"{resourceName: cpu, restartPolicy: Maybe}, {resourceName: cpu, restartPolicy: NotRequired}]"),
			[]string{c + "resizePolicy[0].resourceName: Unsupported value",
				c + "resizePolicy[1].restartPolicy: Unsupported value",
				c + "resizePolicy[2].resourceName: Duplicate value"}},
		{"resize with restart, where nothing restarts", aPod("restartPolicy: Never\ncontainers:\n" +
			"- {name: a, image: b, resizePolicy: [{resourceName: cpu, restartPolicy: RestartContainer}]}"),
			[]string{c + "resizePolicy[0].restartPolicy: Invalid value"}},
		{"init container with life", anInitContainer("lifecycle: {preStop: {exec: {command: [a]}}}\n" +
			"readinessProbe: {exec: {command: [a]}}\nresizePolicy: [{resourceName: cpu, restartPolicy: RestartContainer}]"),
			[]string{"spec.initContainers[0].lifecycle: Forbidden", "spec.initContainers[0].readinessProbe: Forbidden",
				"spec.initContainers[0].resizePolicy[0].restartPolicy: Invalid value"}},
	})
	checkRight(t, map[string]string{
		"sidecar": anInitContainer("restartPolicy: Always\nlifecycle: {preStop: {exec: {command: [a]}}}\n" +
			"readinessProbe: {exec: {command: [a]}}"),
		"rules":     aContainer("restartPolicy: Never\nrestartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [1]}}]"),
		"resizable": aContainer("resizePolicy: [{resourceName: cpu, restartPolicy: RestartContainer}, {resourceName: memory, restartPolicy: NotRequired}]"),
	})
}

func TestValidatePorts(t *testing.T) {
	const p = "spec.containers[0].ports"
	checkWrong(t, []wrong{
		{"name", aContainer("ports: [{name: 'A B', containerPort: 1}]"), []string{p + "[0].name: Invalid value"}},
		{"two of one name", aContainer("ports: [{name: a, containerPort: 1}, {name: a, containerPort: 2}]"),
			[]string{p + "[1].name: Duplicate value"}},
		{"none", aContainer("ports: [{name: a}]"), []string{p + "[0].containerPort: Required value"}},
		{"negative", aContainer("ports: [{containerPort: -1}]"), []string{p + "[0].containerPort: Invalid value"}},
		{"host port", aContainer("ports: [{containerPort: 1, hostPort: 65536}]"), []string{p + "[0].hostPort: Invalid value"}},
		{"host port twice", aContainer("ports: [{containerPort: 1, hostPort: 5}, {containerPort: 2, hostPort: 5}]"),
			[]string{p + "[1].hostPort: Duplicate value"}},
		{"host port of two containers", aPod("containers:\n- {name: a, image: b, ports: [{containerPort: 1, hostPort: 5}]}\n" +
			"- {name: b, image: b, ports: [{containerPort: 1, hostPort: 5}]}"),
			[]string{"spec.containers[1].ports[0].hostPort: Duplicate value"}},
		{"host address", aContainer("ports: [{containerPort: 1, hostIP: 10.0.0}]"), []string{p + "[0].hostIP: Invalid value"}},
		{"protocol", aContainer("ports: [{containerPort: 1, protocol: tcp}]"), []string{p + "[0].protocol: Unsupported value"}},
		{"host network", aPod("hostNetwork: true\ncontainers: [{name: a, image: b, ports: [{containerPort: 1, hostPort: 2}]}]"),
			[]string{p + "[0].hostPort: Invalid value"}},
	})
	checkRight(t, map[string]string{
		"protocols and addresses differ": aContainer("ports: [{containerPort: 1, hostPort: 5}, {containerPort: 1, hostPort: 5, protocol: UDP}, " +
			"{containerPort: 1, hostPort: 5, hostIP: 10.0.0.1}, {containerPort: 65535, hostIP: '::1', hostPort: 5, protocol: SCTP}]"),
		"init containers take turns": aPod("initContainers:\n- {name: a, image: b, ports: [{containerPort: 1, hostPort: 5}]}\n" +
			"- {name: b, image: b, ports: [{containerPort: 1, hostPort: 5}]}"),
	})
}

func TestValidateEnvironment(t *testing.T) {
	const e = "spec.containers[0].env[0]"
	checkWrong(t, []wrong{
		{"nameless", aContainer("env: [{value: a}]"), []string{e + ".name: Required value"}},
		{"misnamed", aContainer("env: [{name: 'a=b', value: a}]"), []string{e + ".name: Invalid value"}},
		{"value twice", aContainer("env: [{name: a, value: b, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]"),
			[]string{e + ".valueFrom: Invalid value"}},
		{"no source", aContainer("env: [{name: a, valueFrom: {}}]"), []string{e + ".valueFrom: Invalid value"}},
		{"two sources",
			aContainer("env: [{name: a, valueFrom: {fieldRef: {fieldPath: metadata.name}, secretKeyRef: {name: a, key: b}}}]"),
			[]string{e + ".valueFrom: Invalid value"}},
		{"field", aContainer("env: [{name: a, valueFrom: {fieldRef: {fieldPath: metadata.labels}}}]"),
			[]string{e + ".valueFrom.fieldRef.fieldPath: Unsupported value"}},
		{"field with nonsense behind",
			aContainer("env: [{name: a, valueFrom: {fieldRef: {fieldPath: \"metadata.labels['a'\"}}}]"),
			[]string{e + ".valueFrom.fieldRef.fieldPath: Unsupported value"}},
		{"no field", aContainer("env: [{name: a, valueFrom: {fieldRef: {}}}]"),
			[]string{e + ".valueFrom.fieldRef.fieldPath: Required value"}},
		{"version of field", aContainer("env: [{name: a, valueFrom: {fieldRef: {apiVersion: v2, fieldPath: metadata.name}}}]"),
			[]string{e + ".valueFrom.fieldRef.apiVersion: Unsupported value"}},
		{"resource", aContainer("env: [{name: a, valueFrom: {resourceFieldRef: {resource: limits.disk}}}]"),
			[]string{e + ".valueFrom.resourceFieldRef.resource: Unsupported value"}},
		{"divisor", aContainer("env: [{name: a, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 2}}}]"),
			[]string{e + ".valueFrom.resourceFieldRef.divisor: Unsupported value"}},
		{"keys", aContainer("env: [{name: a, valueFrom: {configMapKeyRef: {name: A, key: 'b c'}}}]"),
			[]string{e + ".valueFrom.configMapKeyRef.name: Invalid value", e + ".valueFrom.configMapKeyRef.key: Invalid value"}},
		{"file", aContainer("env: [{name: a, valueFrom: {fileKeyRef: {volumeName: w, path: ../a, key: b}}}]"),
			[]string{e + ".valueFrom.fileKeyRef.path: Invalid value", e + ".valueFrom.fileKeyRef.volumeName: Not found"}},
		{"prefix", aContainer("envFrom: [{prefix: '=', secretRef: {name: a}}]"),
			[]string{"spec.containers[0].envFrom[0].prefix: Invalid value"}},
		{"from nothing", aContainer("envFrom: [{}]"), []string{"spec.containers[0].envFrom[0]: Invalid value"}},
		{"from two", aContainer("envFrom: [{secretRef: {name: a}, configMapRef: {}}]"),
			[]string{"spec.containers[0].envFrom[0].configMapRef.name: Required value",
				"spec.containers[0].envFrom[0]: Invalid value"}},
	})
	checkRight(t, map[string]string{
		"values": aContainer("env: [{name: A_b.c-d, value: ''}, {name: 1st, value: x}]"),
		"sources": aContainer("env:\n- {name: a, valueFrom: {fieldRef: {fieldPath: \"metadata.labels['a/b']\"}}}\n" +
			"- {name: b, valueFrom: {resourceFieldRef: {resource: limits.hugepages-2Mi, divisor: 1Mi}}}\n" +
			"- {name: c, valueFrom: {resourceFieldRef: {resource: requests.cpu, divisor: 1m}}}\n" +
			"- {name: d, valueFrom: {fileKeyRef: {volumeName: v, path: a/b, key: C}}}\n" +
			"envFrom: [{prefix: p_, configMapRef: {name: a}}, {secretRef: {name: b}}]"),
	})
}

func TestValidateMounts(t *testing.T) {
	const m = "spec.containers[0].volumeMounts[0]"
	const second = "spec.containers[0].volumeMounts[1]"
	checkWrong(t, []wrong{
		{"no such volume", aContainer("volumeMounts: [{name: w, mountPath: /a}]"), []string{m + ".name: Not found"}},
		{"nameless", aContainer("volumeMounts: [{mountPath: /a}]"), []string{m + ".name: Required value"}},
		{"nowhere", aContainer("volumeMounts: [{name: v}]"), []string{m + ".mountPath: Required value"}},
		{"same place twice", aContainer("volumeMounts: [{name: v, mountPath: /a}, {name: v, mountPath: /a}]"),
			[]string{second + ".mountPath: Invalid value"}},
		{"sub-path out", aContainer("volumeMounts: [{name: v, mountPath: /a, subPath: b/../../c}]"),
			[]string{m + ".subPath: Invalid value"}},
		{"absolute sub-path", aContainer("volumeMounts: [{name: v, mountPath: /a, subPath: /b}]"),
			[]string{m + ".subPath: Invalid value"}},
		{"two sub-paths", aContainer("volumeMounts: [{name: v, mountPath: /a, subPath: b, subPathExpr: c}]"),
			[]string{m + ".subPathExpr: Invalid value"}},
		{"propagation", aContainer("volumeMounts: [{name: v, mountPath: /a, mountPropagation: Both}]"),
			[]string{m + ".mountPropagation: Unsupported value"}},
		{"propagation to the host", aContainer("volumeMounts: [{name: v, mountPath: /a, mountPropagation: Bidirectional}]"),
			[]string{m + ".mountPropagation: Forbidden"}},
		{"read-only below",
			aContainer("volumeMounts: [{name: v, mountPath: /a, recursiveReadOnly: Enabled, mountPropagation: HostToContainer}]"),
			[]string{m + ".recursiveReadOnly: Forbidden"}},
		{"read-only somehow", aContainer("volumeMounts: [{name: v, mountPath: /a, readOnly: true, recursiveReadOnly: Perhaps}]"),
			[]string{m + ".recursiveReadOnly: Unsupported value"}},
	})
	checkRight(t, map[string]string{
		"sub-paths": aContainer("volumeMounts: [{name: v, mountPath: /a, subPath: b/..c}, {name: v, mountPath: /b, subPathExpr: $(A)}]"),
		"privileged": aContainer("securityContext: {privileged: true}\n" +
			"volumeMounts: [{name: v, mountPath: /a, mountPropagation: Bidirectional}]"),
		"read-only below": aContainer("volumeMounts: [{name: v, mountPath: /a, readOnly: true, recursiveReadOnly: Enabled, mountPropagation: None}]"),
	})
}

func TestValidateDevices(t *testing.T) {
	const d = "spec.containers[0].volumeDevices[0]"
	withClaim := func(lines string) string {
		return strings.Replace(aContainer(lines), "emptyDir: {}", "persistentVolumeClaim: {claimName: c}", 1)
	}
	checkWrong(t, []wrong{
		{"no such volume", withClaim("volumeDevices: [{name: w, devicePath: /a}]"), []string{d + ".name: Not found"}},
		{"nameless", withClaim("volumeDevices: [{devicePath: /a}]"), []string{d + ".name: Required value"}},
		{"nowhere", withClaim("volumeDevices: [{name: v}]"), []string{d + ".devicePath: Required value"}},
		{"step back", withClaim("volumeDevices: [{name: v, devicePath: /dev/../a}]"), []string{d + ".devicePath: Invalid value"}},
		{"no claim", aContainer("volumeDevices: [{name: v, devicePath: /a}]"), []string{d + ".name: Invalid value"}},
		{"mounted too", withClaim("volumeMounts: [{name: v, mountPath: /m}]\nvolumeDevices: [{name: v, devicePath: /a}]"),
			[]string{d + ".name: Duplicate value"}},
		{"on a mount", strings.Replace(withClaim("volumeMounts: [{name: e, mountPath: /a}]\nvolumeDevices: [{name: v, devicePath: /a}]"),
			"volumes: [", "volumes: [{name: e, emptyDir: {}}, ", 1), []string{d + ".devicePath: Duplicate value"}},
	})
	checkRight(t, map[string]string{"a claim": withClaim("volumeDevices: [{name: v, devicePath: /dev/xvda}]")})
}

func TestValidateResources(t *testing.T) {
	const r = "spec.containers[0].resources"
	checkWrong(t, []wrong{
		{"request above limit", aContainer("resources: {limits: {cpu: 1}, requests: {cpu: 2}}"),
			[]string{r + ".requests[cpu]: Invalid value"}},
		{"negative", aContainer("resources: {limits: {memory: -1}}"),
			[]string{r + ".limits[memory]: Invalid value", r + ".requests[memory]: Invalid value"}},
		{"huge pages alone", aContainer("resources: {limits: {hugepages-2Mi: 2Mi}}"), []string{r + ": Forbidden"}},
		{"half a huge page", aContainer("resources: {limits: {hugepages-2Mi: 3Mi, cpu: 1}}"),
			[]string{r + ".limits[hugepages-2Mi]: Invalid value", r + ".requests[hugepages-2Mi]: Invalid value"}},
		{"huge pages of no size", aContainer("resources: {limits: {hugepages-big: 3Mi, cpu: 1}}"),
			[]string{r + ".limits[hugepages-big]: Invalid value", r + ".requests[hugepages-big]: Invalid value"}},
		{"pod needs more", aPod("resources: {requests: {cpu: 1}, limits: {hugepages-2Mi: 2Mi, cpu: 1}}\n" +
			"containers: [{name: a, image: b, resources: {limits: {hugepages-2Mi: 4Mi, cpu: 2}}}]"),
			[]string{"spec.resources.requests[cpu]: Invalid value", "spec.resources.requests[hugepages-2Mi]: Invalid value",
				"spec.resources.limits[hugepages-2Mi]: Invalid value",
				r + ".limits[cpu]: Invalid value", r + ".limits[hugepages-2Mi]: Invalid value"}},
	})
	checkRight(t, map[string]string{
		"usual": aContainer("resources: {limits: {cpu: 500m, memory: 64Mi, hugepages-2Mi: 4Mi, example.com/gpu: 2}, " +
			"requests: {cpu: 250m, ephemeral-storage: 1Gi}}"),
		"pod": aPod("resources: {limits: {cpu: 2, memory: 1Gi}}\ncontainers: [{name: a, image: b, resources: {limits: {cpu: 1}}}]"),
	})
}
