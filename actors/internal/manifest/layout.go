package manifest

// layout lists, for each type that a pod of Kubernetes 1.36 is made of, the fields that its internal type has, in their
// order there. The UIDs of static pods are computed from it, so it must never change. Types
// that a static pod cannot have, as podspec refuses them, are not in it.
var layout = map[string]string{
	"Affinity":              "NodeAffinity PodAffinity PodAntiAffinity",
	"AppArmorProfile":       "Type LocalhostProfile",
	"Capabilities":          "Add Drop",
	"ConfigMapEnvSource":    "LocalObjectReference Optional",
	"ConfigMapKeySelector":  "LocalObjectReference Key Optional",
	"ConfigMapProjection":   "LocalObjectReference Items Optional",
	"ConfigMapVolumeSource": "LocalObjectReference Items DefaultMode Optional",
	"Container": "Name Image Command Args WorkingDir Ports EnvFrom Env Resources ResizePolicy RestartPolicy" +
		" RestartPolicyRules VolumeMounts VolumeDevices LivenessProbe ReadinessProbe StartupProbe Lifecycle" +
		" TerminationMessagePath TerminationMessagePolicy ImagePullPolicy SecurityContext Stdin StdinOnce TTY",
	"ContainerPort":                   "Name HostPort ContainerPort Protocol HostIP",
	"ContainerResizePolicy":           "ResourceName RestartPolicy",
	"ContainerRestartRule":            "Action ExitCodes",
	"ContainerRestartRuleOnExitCodes": "Operator Values",
	"DownwardAPIProjection":           "Items",
	"DownwardAPIVolumeFile":           "Path FieldRef ResourceFieldRef Mode",
	"DownwardAPIVolumeSource":         "Items DefaultMode",
	"EmptyDirVolumeSource":            "Medium SizeLimit",
	"EnvFromSource":                   "Prefix ConfigMapRef SecretRef",
	"EnvVar":                          "Name Value ValueFrom",
	"EnvVarSource":                    "FieldRef ResourceFieldRef ConfigMapKeyRef SecretKeyRef FileKeyRef",
	"ExecAction":                      "Command",
	"FileKeySelector":                 "VolumeName Path Key Optional",
	"GRPCAction":                      "Port Service",
	"HTTPGetAction":                   "Path Port Host Scheme HTTPHeaders",
	"HTTPHeader":                      "Name Value",
	"HostAlias":                       "IP Hostnames",
	"HostPathVolumeSource":            "Path Type",
	"ImageVolumeSource":               "Reference PullPolicy",
	"KeyToPath":                       "Key Path Mode",
	"Lifecycle":                       "PostStart PreStop StopSignal",
	"LifecycleHandler":                "Exec HTTPGet TCPSocket Sleep",
	"LocalObjectReference":            "Name",
	"NFSVolumeSource":                 "Server Path ReadOnly",
	"NodeAffinity": "RequiredDuringSchedulingIgnoredDuringExecution " +
		"PreferredDuringSchedulingIgnoredDuringExecution",
	"NodeSelector":            "NodeSelectorTerms",
	"NodeSelectorRequirement": "Key Operator Values",
	"NodeSelectorTerm":        "MatchExpressions MatchFields",
	"ObjectFieldSelector":     "APIVersion FieldPath",
	"ObjectMeta": "Name GenerateName Namespace SelfLink UID ResourceVersion Generation CreationTimestamp" +
		" DeletionTimestamp DeletionGracePeriodSeconds Labels Annotations OwnerReferences Finalizers ManagedFields",
	"Pod": "TypeMeta ObjectMeta Spec Status",
	"PodAffinity": "RequiredDuringSchedulingIgnoredDuringExecution" +
		" PreferredDuringSchedulingIgnoredDuringExecution",
	"PodAffinityTerm": "LabelSelector Namespaces TopologyKey NamespaceSelector MatchLabelKeys MismatchLabelKeys",
	"PodAntiAffinity": "RequiredDuringSchedulingIgnoredDuringExecution" +
		" PreferredDuringSchedulingIgnoredDuringExecution",
	"PodDNSConfig":       "Nameservers Searches Options",
	"PodDNSConfigOption": "Name Value",
	"PodOS":              "Name",
	"PodReadinessGate":   "ConditionType",
	"PodSchedulingGate":  "Name",
	"PodSchedulingGroup": "PodGroupName",
	"PodSecurityContext": "HostNetwork HostPID HostIPC ShareProcessNamespace HostUsers SELinuxOptions WindowsOptions" +
		" RunAsUser RunAsGroup RunAsNonRoot SupplementalGroups SupplementalGroupsPolicy FSGroup FSGroupChangePolicy" +
		" Sysctls SeccompProfile AppArmorProfile SELinuxChangePolicy",
	"PodSpec": "Volumes InitContainers Containers EphemeralContainers RestartPolicy TerminationGracePeriodSeconds" +
		" ActiveDeadlineSeconds DNSPolicy NodeSelector ServiceAccountName AutomountServiceAccountToken NodeName" +
		" SecurityContext ImagePullSecrets Hostname Subdomain SetHostnameAsFQDN Affinity SchedulerName Tolerations" +
		" HostAliases PriorityClassName Priority PreemptionPolicy DNSConfig ReadinessGates RuntimeClassName Overhead" +
		" EnableServiceLinks TopologySpreadConstraints OS SchedulingGates ResourceClaims Resources HostnameOverride" +
		" SchedulingGroup",
	"PodStatus": "ObservedGeneration Phase Conditions Message Reason NominatedNodeName HostIP HostIPs PodIPs" +
		" StartTime QOSClass InitContainerStatuses ContainerStatuses EphemeralContainerStatuses Resize" +
		" ResourceClaimStatuses ExtendedResourceClaimStatus AllocatedResources Resources" +
		" NodeAllocatableResourceClaimStatuses",
	"PreferredSchedulingTerm": "Weight Preference",
	"Probe": "ProbeHandler InitialDelaySeconds TimeoutSeconds PeriodSeconds SuccessThreshold FailureThreshold" +
		" TerminationGracePeriodSeconds",
	"ProbeHandler":          "Exec HTTPGet TCPSocket GRPC",
	"ProjectedVolumeSource": "Sources DefaultMode",
	"ResourceFieldSelector": "ContainerName Resource Divisor",
	"ResourceRequirements":  "Limits Requests Claims",
	"SELinuxOptions":        "User Role Type Level",
	"SeccompProfile":        "Type LocalhostProfile",
	"SecretEnvSource":       "LocalObjectReference Optional",
	"SecretKeySelector":     "LocalObjectReference Key Optional",
	"SecretProjection":      "LocalObjectReference Items Optional",
	"SecretVolumeSource":    "SecretName Items DefaultMode Optional",
	"SecurityContext": "Capabilities Privileged SELinuxOptions WindowsOptions RunAsUser RunAsGroup RunAsNonRoot" +
		" ReadOnlyRootFilesystem AllowPrivilegeEscalation ProcMount SeccompProfile AppArmorProfile",
	"SleepAction":     "Seconds",
	"Sysctl":          "Name Value",
	"TCPSocketAction": "Port Host",
	"Toleration":      "Key Operator Value Effect TolerationSeconds",
	"TopologySpreadConstraint": "MaxSkew TopologyKey WhenUnsatisfiable LabelSelector MinDomains NodeAffinityPolicy" +
		" NodeTaintsPolicy MatchLabelKeys",
	"Volume":           "Name VolumeSource",
	"VolumeMount":      "Name ReadOnly RecursiveReadOnly MountPath SubPath MountPropagation SubPathExpr",
	"VolumeProjection": "Secret DownwardAPI ConfigMap ServiceAccountToken ClusterTrustBundle PodCertificate",
	"VolumeSource": "HostPath EmptyDir GCEPersistentDisk AWSElasticBlockStore GitRepo Secret NFS ISCSI Glusterfs" +
		" PersistentVolumeClaim RBD Quobyte FlexVolume Cinder CephFS Flocker DownwardAPI FC AzureFile ConfigMap" +
		" VsphereVolume AzureDisk PhotonPersistentDisk Projected PortworxVolume ScaleIO StorageOS CSI Ephemeral Image",
	"WeightedPodAffinityTerm": "Weight PodAffinityTerm",
}

// movedOrMirrored are the fields of a spec that the internal types keep elsewhere: in the security context, where the
// layout has them, or nowhere, since they repeat another field.
var movedOrMirrored = []string{
	"HostNetwork", "HostPID", "HostIPC", "ShareProcessNamespace", "HostUsers", "DeprecatedServiceAccount",
}
