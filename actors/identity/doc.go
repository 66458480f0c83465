// Package identity is the actor that holds this node's credentials: the client certificate towards the API server and the
// serving certificate of port 10250.
//
// What is in force belongs to the process and outlives the actor: a Client makes the configurations of clients whose new
// connections take the newest certificate, and a Serving makes a TLS configuration whose handshakes do. Whoever has one of them
// needs not be told of a rotation, and no request fails by one: requests under way end on the connection that they began on. The
// actor's part is to have both run, and to say what is wrong: a certificate that expires, a request (CSR) that waits for
// approval, or a denial.
//
// k8s.io/client-go/util/certificate asks for certificates and keeps them in the kubelet's files below --cert-dir, so that a node
// that is taken over keeps its identity, in either direction.
package identity
