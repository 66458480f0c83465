package podspec

import (
	"path"
	"regexp"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	maxLUN       = 255
	maxPartition = 255
)

// iSCSIName takes the three ways to name an iSCSI node (RFC 3720, 3.2.6).
var iSCSIName = regexp.MustCompile(
	`^(iqn\.\d{4}-\d{2}\.[[:alnum:].-]+(:[^,;*&$|\s]+)?|eui\.[[:xdigit:]]{16}|naa\.[[:xdigit:]]{16}([[:xdigit:]]{16})?)$`)

// networkVolume checks the kinds that a node reaches over a network without a cloud.
func (v *validator) networkVolume(volume *v1.Volume, at *field.Path) {
	if nfs := volume.NFS; nfs != nil {
		here := at.Child("nfs")
		v.needs(here, "server", nfs.Server, "path", nfs.Path)
		if nfs.Path != "" && !path.IsAbs(nfs.Path) {
			v.invalid(here.Child("path"), nfs.Path, "must be absolute")
		}
	}
	if iscsi := volume.ISCSI; iscsi != nil {
		v.iscsi(iscsi, at.Child("iscsi"))
	}
	if fc := volume.FC; fc != nil {
		v.fibreChannel(fc, at.Child("fc"))
	}
	if rbd := volume.RBD; rbd != nil {
		v.needs(at.Child("rbd"), "image", rbd.RBDImage, "monitors", strings.Join(rbd.CephMonitors, ""))
	}
	if ceph := volume.CephFS; ceph != nil {
		v.needs(at.Child("cephfs"), "monitors", strings.Join(ceph.Monitors, ""))
	}
	if gluster := volume.Glusterfs; gluster != nil {
		v.needs(at.Child("glusterfs"), "endpoints", gluster.EndpointsName, "path", gluster.Path)
	}
	if quobyte := volume.Quobyte; quobyte != nil {
		v.needs(at.Child("quobyte"), "registry", quobyte.Registry, "volume", quobyte.Volume)
	}
	if flocker := volume.Flocker; flocker != nil {
		v.flocker(flocker, at.Child("flocker"))
	}
	if scaleIO := volume.ScaleIO; scaleIO != nil {
		v.needs(at.Child("scaleIO"),
			"gateway", scaleIO.Gateway, "system", scaleIO.System, "volumeName", scaleIO.VolumeName)
	}
	if storage := volume.StorageOS; storage != nil {
		v.label(at.Child("storageos", "volumeName"), storage.VolumeName)
	}
	if flex := volume.FlexVolume; flex != nil {
		v.needs(at.Child("flexVolume"), "driver", flex.Driver)
	}
}

func (v *validator) flocker(flocker *v1.FlockerVolumeSource, at *field.Path) {
	if (flocker.DatasetName == "") == (flocker.DatasetUUID == "") {
		v.required(at, "needs either datasetName or datasetUUID")
	}
	if strings.Contains(flocker.DatasetName, "/") {
		v.invalid(at.Child("datasetName"), flocker.DatasetName, "must not contain a slash")
	}
}

func (v *validator) iscsi(iscsi *v1.ISCSIVolumeSource, at *field.Path) {
	v.needs(at, "targetPortal", iscsi.TargetPortal, "iqn", iscsi.IQN)
	const why = "must be an iSCSI name: iqn.<year-month>.<domain>[:<name>], eui.<16 digits> or naa.<16 or 32 digits>"
	if iscsi.IQN != "" && !iSCSIName.MatchString(iscsi.IQN) {
		v.invalid(at.Child("iqn"), iscsi.IQN, why)
	}
	if name := iscsi.InitiatorName; name != nil && !iSCSIName.MatchString(*name) {
		v.invalid(at.Child("initiatorName"), *name, why)
	}
	v.between(at.Child("lun"), int64(iscsi.Lun), 0, maxLUN)
	if (iscsi.DiscoveryCHAPAuth || iscsi.SessionCHAPAuth) && iscsi.SecretRef == nil {
		v.required(at.Child("secretRef"), "CHAP needs it")
	}
}

func (v *validator) fibreChannel(fc *v1.FCVolumeSource, at *field.Path) {
	if (len(fc.TargetWWNs) == 0) == (len(fc.WWIDs) == 0) {
		v.required(at, "needs either targetWWNs or wwids")
	}
	if len(fc.TargetWWNs) == 0 {
		return
	}
	if fc.Lun == nil {
		v.required(at.Child("lun"), "targetWWNs need it")
		return
	}
	v.between(at.Child("lun"), int64(*fc.Lun), 0, maxLUN)
}

// cloudVolume checks the disks of cloud providers.
func (v *validator) cloudVolume(volume *v1.Volume, at *field.Path) {
	if disk := volume.GCEPersistentDisk; disk != nil {
		v.needs(at.Child("gcePersistentDisk"), "pdName", disk.PDName)
		v.between(at.Child("gcePersistentDisk", "partition"), int64(disk.Partition), 0, maxPartition)
	}
	if disk := volume.AWSElasticBlockStore; disk != nil {
		v.needs(at.Child("awsElasticBlockStore"), "volumeID", disk.VolumeID)
		v.between(at.Child("awsElasticBlockStore", "partition"), int64(disk.Partition), 0, maxPartition)
	}
	if disk := volume.Cinder; disk != nil {
		v.needs(at.Child("cinder"), "volumeID", disk.VolumeID)
	}
	if file := volume.AzureFile; file != nil {
		v.needs(at.Child("azureFile"), "secretName", file.SecretName, "shareName", file.ShareName)
	}
	if disk := volume.VsphereVolume; disk != nil {
		v.needs(at.Child("vsphereVolume"), "volumePath", disk.VolumePath)
	}
	if disk := volume.PhotonPersistentDisk; disk != nil {
		v.needs(at.Child("photonPersistentDisk"), "pdID", disk.PdID)
	}
	if disk := volume.PortworxVolume; disk != nil {
		v.needs(at.Child("portworxVolume"), "volumeID", disk.VolumeID)
	}
	if disk := volume.AzureDisk; disk != nil {
		v.azureDisk(disk, at.Child("azureDisk"))
	}
}

func (v *validator) azureDisk(disk *v1.AzureDiskVolumeSource, at *field.Path) {
	v.needs(at, "diskName", disk.DiskName, "diskURI", disk.DataDiskURI)
	ifSet(&v.checker, at.Child("cachingMode"), disk.CachingMode, v1.AzureDataDiskCachingNone,
		v1.AzureDataDiskCachingReadOnly, v1.AzureDataDiskCachingReadWrite)
	ifSet(&v.checker, at.Child("kind"), disk.Kind, v1.AzureSharedBlobDisk, v1.AzureDedicatedBlobDisk,
		v1.AzureManagedDisk)
	begin := "https://"
	if deref(disk.Kind) == v1.AzureManagedDisk {
		begin = "/subscriptions/"
	}
	if disk.DataDiskURI != "" && !strings.HasPrefix(disk.DataDiskURI, begin) {
		v.invalid(at.Child("diskURI"), disk.DataDiskURI, "must begin with "+begin+" for this kind")
	}
}
