package messages

// ObjectsChanged says that ConfigMaps and Secrets are read, up to this version; volumes that hold older ones are to be
// written again, and pulls may have other credentials. Told again, it says nothing new.
//
// Sender: objects. Receiver: volumes, images. Reply: none.
// If lost: objects tells it again at each regular check.
type ObjectsChanged struct{ Version uint64 }

// ObjectProblems is all that is wrong with the manifests of ConfigMaps and Secrets. It never says what they hold.
//
// Sender: objects. Receiver: pods. Reply: none.
// If lost: objects tells it again at each regular check.
type ObjectProblems struct{ Problems []ManifestProblem }
