package podspec

// verdict is what this agent does about a field of a pod's spec.
type verdict string

const (
	// honoured: what the field says happens.
	honoured verdict = "honoured"
	// ignorable: on the node the field changes nothing, whatever it says; it speaks to a scheduler, or of services
	// and accounts that a pod without an API server does not have.
	ignorable verdict = "ignorable"
	// refused: not honoured yet, so that a pod which sets the field is refused.
	refused verdict = "refused"
)

// rule says what is done about one field or, unless it is honoured, one field and all below it.
//
// The path is as in manifests, below spec. [] stands for each item of a list; {a,b} for both spellings, so that two
// kinds of containers need one line. Only, where given, lists the values that the verdict is about besides the default
// (for a map: its keys; a trailing * stands for any ending); all others are refused.
type rule struct {
	verdict verdict
	path    string
	only    []string
}

// fields is the whole of a pod's spec, each field in exactly one line. To honour a field that was refused, change its
// word here. A field that the API gains fails a test until it has its line.
var fields = []rule{
	// How long the pod lives, and how it ends.
	{honoured, "restartPolicy", nil},
	{honoured, "terminationGracePeriodSeconds", nil},
	{honoured, "activeDeadlineSeconds", nil},
	{refused, "readinessGates", nil},

	// Namespaces, users, privileges.
	{honoured, "hostNetwork", nil},
	{honoured, "hostPID", nil},
	{honoured, "hostIPC", nil},
	{honoured, "hostUsers", []string{"true"}},
	{honoured, "shareProcessNamespace", nil},
	{honoured, "os.name", []string{"linux"}},
	{honoured, "securityContext.runAsUser", nil},
	{honoured, "securityContext.runAsGroup", nil},
	{honoured, "securityContext.runAsNonRoot", nil},
	{honoured, "securityContext.supplementalGroups[]", nil},
	{honoured, "securityContext.supplementalGroupsPolicy", nil},
	{honoured, "securityContext.fsGroup", nil},
	{ignorable, "securityContext.fsGroupChangePolicy", nil}, // says nothing of the kinds of volumes there are,
	{honoured, "securityContext.sysctls[].name", nil},
	{honoured, "securityContext.sysctls[].value", nil},
	{honoured, "securityContext.seccompProfile.type", nil},
	{honoured, "securityContext.seccompProfile.localhostProfile", nil},
	{honoured, "securityContext.appArmorProfile.type", nil},
	{honoured, "securityContext.appArmorProfile.localhostProfile", nil},
	{honoured, "securityContext.seLinuxOptions.user", nil},
	{honoured, "securityContext.seLinuxOptions.role", nil},
	{honoured, "securityContext.seLinuxOptions.type", nil},
	{honoured, "securityContext.seLinuxOptions.level", nil},
	{refused, "securityContext.seLinuxChangePolicy", nil},
	{refused, "securityContext.windowsOptions", nil},

	// Names and name resolution.
	{honoured, "hostname", nil},
	{refused, "subdomain", nil},
	{refused, "setHostnameAsFQDN", nil},
	{refused, "hostnameOverride", nil},
	{honoured, "hostAliases[].ip", nil},
	{honoured, "hostAliases[].hostnames[]", nil},
	{honoured, "dnsPolicy", nil},
	{honoured, "dnsConfig.nameservers[]", nil},
	{honoured, "dnsConfig.searches[]", nil},
	{honoured, "dnsConfig.options[].name", nil},
	{honoured, "dnsConfig.options[].value", nil},

	// What speaks to others than the node.
	{ignorable, "nodeName", nil},
	{ignorable, "nodeSelector", nil},
	{ignorable, "affinity", nil},
	{ignorable, "tolerations", nil},
	{ignorable, "topologySpreadConstraints", nil},
	{ignorable, "schedulerName", nil},
	{ignorable, "schedulingGates", nil},
	{ignorable, "schedulingGroup", nil},
	{ignorable, "priority", nil},
	{ignorable, "priorityClassName", nil},
	{ignorable, "preemptionPolicy", nil},
	{ignorable, "evictionResponders", nil},
	{ignorable, "serviceAccountName", nil},
	{ignorable, "serviceAccount", nil},
	{ignorable, "automountServiceAccountToken", nil},
	{ignorable, "enableServiceLinks", nil},

	// What needs the API server or a part that is not there yet.
	{refused, "imagePullSecrets", nil},
	{refused, "runtimeClassName", nil},
	{refused, "overhead", nil},
	{refused, "resources", nil},
	{refused, "resourceClaims", nil},
	{refused, "ephemeralContainers", nil},

	// Containers: image and process.
	{honoured, "{containers,initContainers}[].name", nil},
	{honoured, "{containers,initContainers}[].image", nil},
	{honoured, "{containers,initContainers}[].imagePullPolicy", nil},
	{honoured, "{containers,initContainers}[].command[]", nil},
	{honoured, "{containers,initContainers}[].args[]", nil},
	{honoured, "{containers,initContainers}[].workingDir", nil},
	{honoured, "{containers,initContainers}[].env[].name", nil},
	{honoured, "{containers,initContainers}[].env[].value", nil},
	{honoured, "{containers,initContainers}[].env[].valueFrom.fieldRef.apiVersion", nil},
	{honoured, "{containers,initContainers}[].env[].valueFrom.fieldRef.fieldPath", nil},
	{honoured, "{containers,initContainers}[].env[].valueFrom.resourceFieldRef.containerName", nil},
	{honoured, "{containers,initContainers}[].env[].valueFrom.resourceFieldRef.resource", nil},
	{honoured, "{containers,initContainers}[].env[].valueFrom.resourceFieldRef.divisor", nil},
	{refused, "{containers,initContainers}[].env[].valueFrom.configMapKeyRef", nil},
	{refused, "{containers,initContainers}[].env[].valueFrom.secretKeyRef", nil},
	{refused, "{containers,initContainers}[].env[].valueFrom.fileKeyRef", nil},
	{refused, "{containers,initContainers}[].envFrom", nil},
	{honoured, "{containers,initContainers}[].stdin", nil},
	{honoured, "{containers,initContainers}[].stdinOnce", nil},
	{honoured, "{containers,initContainers}[].tty", nil},
	{honoured, "{containers,initContainers}[].terminationMessagePath", nil},
	{honoured, "{containers,initContainers}[].terminationMessagePolicy", nil},

	// Containers: ports and resources.
	{honoured, "{containers,initContainers}[].ports[].name", nil},
	{honoured, "{containers,initContainers}[].ports[].containerPort", nil},
	{honoured, "{containers,initContainers}[].ports[].hostPort", nil},
	{honoured, "{containers,initContainers}[].ports[].hostIP", nil},
	{honoured, "{containers,initContainers}[].ports[].protocol", nil},
	{honoured, "{containers,initContainers}[].resources.limits", []string{"cpu", "memory", "hugepages-*"}},
	{honoured, "{containers,initContainers}[].resources.requests",
		[]string{"cpu", "memory", "hugepages-*", "ephemeral-storage"}},
	{refused, "{containers,initContainers}[].resources.claims", nil},
	{ignorable, "{containers,initContainers}[].resizePolicy", nil},

	// Containers: volumes.
	{honoured, "{containers,initContainers}[].volumeMounts[].name", nil},
	{honoured, "{containers,initContainers}[].volumeMounts[].mountPath", nil},
	{honoured, "{containers,initContainers}[].volumeMounts[].readOnly", nil},
	{honoured, "{containers,initContainers}[].volumeMounts[].recursiveReadOnly", nil},
	{honoured, "{containers,initContainers}[].volumeMounts[].mountPropagation", nil},
	{refused, "{containers,initContainers}[].volumeMounts[].bindMountOptions", nil},
	{refused, "{containers,initContainers}[].volumeMounts[].subPath", nil},
	{refused, "{containers,initContainers}[].volumeMounts[].subPathExpr", nil},
	{refused, "{containers,initContainers}[].volumeDevices", nil},

	// Containers: life.
	{refused, "containers[].restartPolicy", nil},
	{honoured, "initContainers[].restartPolicy", []string{"Always"}},
	{refused, "{containers,initContainers}[].restartPolicyRules", nil},
	{refused, "{containers,initContainers}[].livenessProbe", nil},
	{refused, "{containers,initContainers}[].readinessProbe", nil},
	{refused, "{containers,initContainers}[].startupProbe", nil},
	{refused, "{containers,initContainers}[].lifecycle.postStart", nil},
	{honoured, "{containers,initContainers}[].lifecycle.preStop.exec.command[]", nil},
	{honoured, "{containers,initContainers}[].lifecycle.preStop.httpGet.path", nil},
	{honoured, "{containers,initContainers}[].lifecycle.preStop.httpGet.port", nil},
	{honoured, "{containers,initContainers}[].lifecycle.preStop.httpGet.host", nil},
	{honoured, "{containers,initContainers}[].lifecycle.preStop.httpGet.scheme", nil},
	{honoured, "{containers,initContainers}[].lifecycle.preStop.httpGet.httpHeaders[].name", nil},
	{honoured, "{containers,initContainers}[].lifecycle.preStop.httpGet.httpHeaders[].value", nil},
	{honoured, "{containers,initContainers}[].lifecycle.preStop.httpGet.protocol", []string{"HTTP1"}},
	{refused, "{containers,initContainers}[].lifecycle.preStop.tcpSocket", nil},
	{honoured, "{containers,initContainers}[].lifecycle.preStop.sleep.seconds", nil},
	{honoured, "{containers,initContainers}[].lifecycle.stopSignal", nil},

	// Containers: security.
	{honoured, "{containers,initContainers}[].securityContext.privileged", nil},
	{honoured, "{containers,initContainers}[].securityContext.allowPrivilegeEscalation", nil},
	{honoured, "{containers,initContainers}[].securityContext.readOnlyRootFilesystem", nil},
	{honoured, "{containers,initContainers}[].securityContext.capabilities.add[]", nil},
	{honoured, "{containers,initContainers}[].securityContext.capabilities.drop[]", nil},
	{honoured, "{containers,initContainers}[].securityContext.runAsUser", nil},
	{honoured, "{containers,initContainers}[].securityContext.runAsGroup", nil},
	{honoured, "{containers,initContainers}[].securityContext.runAsNonRoot", nil},
	{honoured, "{containers,initContainers}[].securityContext.procMount", nil},
	{honoured, "{containers,initContainers}[].securityContext.seccompProfile.type", nil},
	{honoured, "{containers,initContainers}[].securityContext.seccompProfile.localhostProfile", nil},
	{honoured, "{containers,initContainers}[].securityContext.appArmorProfile.type", nil},
	{honoured, "{containers,initContainers}[].securityContext.appArmorProfile.localhostProfile", nil},
	{honoured, "{containers,initContainers}[].securityContext.seLinuxOptions.user", nil},
	{honoured, "{containers,initContainers}[].securityContext.seLinuxOptions.role", nil},
	{honoured, "{containers,initContainers}[].securityContext.seLinuxOptions.type", nil},
	{honoured, "{containers,initContainers}[].securityContext.seLinuxOptions.level", nil},
	{refused, "{containers,initContainers}[].securityContext.windowsOptions", nil},

	// Volumes: one line a kind.
	{honoured, "volumes[].name", nil},
	{honoured, "volumes[].emptyDir.medium", []string{"Memory", "HugePages*"}},
	{honoured, "volumes[].emptyDir.sizeLimit", nil}, // in memory; for the disk it is eviction's, and the agent warns
	{honoured, "volumes[].emptyDir.mode", nil},
	{honoured, "volumes[].hostPath.path", nil},
	{honoured, "volumes[].hostPath.type", nil},
	{refused, "volumes[].configMap", nil},
	{refused, "volumes[].secret", nil},
	{honoured, "volumes[].downwardAPI.defaultMode", nil},
	{refused, "volumes[].downwardAPI.defaultUser", nil}, // alpha: AtomicWriteVolumeUserFields
	{refused, "volumes[].downwardAPI.items[].user", nil},
	{honoured, "volumes[].downwardAPI.items[].path", nil},
	{honoured, "volumes[].downwardAPI.items[].mode", nil},
	{honoured, "volumes[].downwardAPI.items[].fieldRef.apiVersion", nil},
	{honoured, "volumes[].downwardAPI.items[].fieldRef.fieldPath", nil},
	{honoured, "volumes[].downwardAPI.items[].resourceFieldRef.containerName", nil},
	{honoured, "volumes[].downwardAPI.items[].resourceFieldRef.resource", nil},
	{honoured, "volumes[].downwardAPI.items[].resourceFieldRef.divisor", nil},
	{refused, "volumes[].projected", nil},
	{refused, "volumes[].image", nil},
	{refused, "volumes[].persistentVolumeClaim", nil},
	{refused, "volumes[].ephemeral", nil},
	{refused, "volumes[].csi", nil},
	{refused, "volumes[].nfs", nil},
	{refused, "volumes[].iscsi", nil},
	{refused, "volumes[].fc", nil},
	{refused, "volumes[].awsElasticBlockStore", nil},
	{refused, "volumes[].azureDisk", nil},
	{refused, "volumes[].azureFile", nil},
	{refused, "volumes[].cephfs", nil},
	{refused, "volumes[].cinder", nil},
	{refused, "volumes[].flexVolume", nil},
	{refused, "volumes[].flocker", nil},
	{refused, "volumes[].gcePersistentDisk", nil},
	{refused, "volumes[].gitRepo", nil},
	{refused, "volumes[].glusterfs", nil},
	{refused, "volumes[].photonPersistentDisk", nil},
	{refused, "volumes[].portworxVolume", nil},
	{refused, "volumes[].quobyte", nil},
	{refused, "volumes[].rbd", nil},
	{refused, "volumes[].scaleIO", nil},
	{refused, "volumes[].storageos", nil},
	{refused, "volumes[].vsphereVolume", nil},
}
