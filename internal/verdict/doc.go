// Package verdict is the one judge: given what a node should show, what its
// kubelet showed, the trust bundle and the time, it says whether a
// kube-apiserver with the CN check of KEP-4872 on would accept the kubelet.
//
// It is pure: no I/O, no clock, no logger, no Kubernetes client. The rules
// follow crypto/x509's Certificate.Verify in the order in which it reports,
// crypto/tls's client handshake, and KEP-4872 ("Harden Kubelet Serving
// Certificate Validation in Kube-API server").
package verdict
