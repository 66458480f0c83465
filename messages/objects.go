package messages

import v1 "k8s.io/api/core/v1"

// ObjectsWanted is all pods of this node that came from the API server. The objects actor reads and watches the objects that
// these pods name, and no others.
//
// Sender: pods. Receiver: objects. Reply: none; ObjectsChanged announces to others that objects were read.
// If lost: pods sends it again with its next sweep.
type ObjectsWanted struct{ Pods []*v1.Pod } // immutable

// ObjectsChanged announces that ConfigMaps and Secrets are read, up to this version. Volumes with older contents must be
// written again, and pulls may have other credentials. It may be sent repeatedly.
//
// Sender: objects. Receiver: volumes, images. Reply: none.
// If lost: objects sends it again at each regular check.
type ObjectsChanged struct{ Version uint64 }

// ObjectProblems lists all faults in the manifests of ConfigMaps and Secrets, and all failures to read them from the API
// server. It never contains their data.
//
// Sender: objects. Receiver: pods. Reply: none.
// If lost: objects sends it again at each regular check.
type ObjectProblems struct{ Problems []ManifestProblem }
