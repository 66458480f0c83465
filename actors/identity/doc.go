// Package identity is the actor that holds this node's credentials: the client certificate towards the API server and the
// serving certificate of port 10250.
//
// The credentials in force belong to the process and outlive the actor. A Client makes configurations of clients that use the
// newest certificate for each new connection. A ServingCertificate makes a TLS configuration that uses the newest one for each
// handshake. Their users need no notification of a rotation, and no request fails because of one: requests in progress end on
// their connection. The actor runs both and reports problems: a certificate that expires, a request (CSR) that waits for
// approval, or a denial.
//
// k8s.io/client-go/util/certificate asks for certificates and keeps them in the kubelet's files below --cert-dir, so that a node
// that is taken over keeps its identity, in either direction.
package identity
