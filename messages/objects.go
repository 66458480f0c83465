package messages

import v1 "k8s.io/api/core/v1"

// ObjectsWanted is all pods here that came from the API server: what they name is read from there and followed, and nothing
// else.
//
// Sender: pods. Receiver: objects. Reply: none; ObjectsChanged says to others that something was read.
// If lost: pods sends it again with its next sweep.
type ObjectsWanted struct{ Pods []*v1.Pod } // immutable

// ObjectsChanged says that ConfigMaps and Secrets are read, up to this version; volumes that hold older ones are to be
// written again, and pulls may have other credentials. Told again, it says nothing new.
//
// Sender: objects. Receiver: volumes, images. Reply: none.
// If lost: objects sends it again at each regular check.
type ObjectsChanged struct{ Version uint64 }

// ObjectProblems is all that is wrong with the manifests of ConfigMaps and Secrets, and with reading them from the API
// server. It never says what they hold.
//
// Sender: objects. Receiver: pods. Reply: none.
// If lost: objects sends it again at each regular check.
type ObjectProblems struct{ Problems []ManifestProblem }
