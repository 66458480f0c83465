// Package e2e tests the agent's binary over real containerd, old and new, and in a real cluster. Its tests have the build tag
// e2e, so that a plain `go test ./...` stays cheap; they need root, and install their other requirements themselves:
//
//	go test -tags e2e ./e2e/...
//
// Below it: stack (a containerd, a registry and agents per test), cluster (a kube-apiserver and etcd), isolate (namespaces in
// which nothing leaks) and parts (pinned builds of the programs). The code that runs containerd and other programs is the
// product's own, below cmd/playlet/dev, and so are the images, of cmd/playlet/dev/devimages.
package e2e
