package oracle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
)

// answer of kube-apiserver: the log, or why there is none.
type answer struct {
	accepted bool
	refusal  v1alpha1.Reason // what its words mean; "" where they are not known
	words    string
}

// ask creates the Node and a Pod on it, and asks for the Pod's log.
func ask(ctx context.Context, c kubernetes.Interface, node *corev1.Node) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, 40*time.Second)
	defer cancel()
	created, err := c.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name}}, metav1.CreateOptions{})
	if err != nil {
		return answer{}, fmt.Errorf("create the Node: %w", err)
	}
	created.Status = node.Status
	if _, err := c.CoreV1().Nodes().UpdateStatus(ctx, created, metav1.UpdateOptions{}); err != nil {
		return answer{}, fmt.Errorf("write the Node's status: %w", err)
	}
	pods := c.CoreV1().Pods(metav1.NamespaceDefault)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: node.Name}, Spec: corev1.PodSpec{
		NodeName: node.Name, Containers: []corev1.Container{{Name: "c", Image: "none"}}}}
	if _, err := pods.Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return answer{}, fmt.Errorf("create the Pod: %w", err)
	}
	// As kubectl does: DoRaw would lose the server's words.
	stream, err := pods.GetLogs(pod.Name, &corev1.PodLogOptions{Container: "c"}).Stream(ctx)
	if err == nil {
		defer func() { _ = stream.Close() }()
		if log, err := io.ReadAll(stream); err != nil || string(log) != "simulated kubelet\n" {
			return answer{}, fmt.Errorf("the log is %q: %w", log, err)
		}
		return answer{accepted: true}, nil
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return answer{}, fmt.Errorf("get the log: %w", err)
	}
	return answer{refusal: refusalOf(err.Error()), words: err.Error()}, nil
}

// refusals are what client-go, net/http, crypto/tls and crypto/x509 say, in the
// product's words. The first that matches counts.
var refusals = []struct {
	words  *regexp.Regexp
	reason v1alpha1.Reason
}{
	{regexp.MustCompile(`no preferred addresses found`), v1alpha1.ReasonNoAddress},
	{regexp.MustCompile(`Get "https://:\d+/`), v1alpha1.ReasonNoAddress}, // an empty one
	{regexp.MustCompile(`x509: certificate has expired or is not yet valid: current time \S+ is before`), v1alpha1.ReasonCertificateNotYetValid},
	{regexp.MustCompile(`x509: certificate has expired or is not yet valid`), v1alpha1.ReasonCertificateExpired},
	{regexp.MustCompile(`x509: certificate is (valid for|not valid for any names)`), v1alpha1.ReasonAddressMismatch},
	{regexp.MustCompile(`x509: cannot validate certificate for \S+ because it doesn't contain any IP SANs`), v1alpha1.ReasonAddressMismatch},
	{regexp.MustCompile(`x509: certificate relies on legacy Common Name field`), v1alpha1.ReasonAddressMismatch},
	{regexp.MustCompile(`x509: certificate signed by unknown authority`), v1alpha1.ReasonUnknownAuthority},
	{regexp.MustCompile(`x509: certificate specifies an incompatible key usage`), v1alpha1.ReasonKeyUsageMismatch},
	{regexp.MustCompile(`tls: failed to verify certificate: x509: `), v1alpha1.ReasonCertificateInvalid},
	{regexp.MustCompile(`tls: failed to parse certificate from server`), v1alpha1.ReasonCertificateInvalid},
	{regexp.MustCompile(`tls: server sent certificate containing RSA key larger`), v1alpha1.ReasonCertificateInvalid},
	{regexp.MustCompile(`tls: server's certificate contains an unsupported type of public key`), v1alpha1.ReasonCertificateInvalid},
	{regexp.MustCompile(`remote error: tls: internal error`), v1alpha1.ReasonNoServingCertificate},
	{regexp.MustCompile(`server gave HTTP response to HTTPS client|tls: first record does not look like`), v1alpha1.ReasonNotTLS},
	{regexp.MustCompile(`tls: `), v1alpha1.ReasonHandshakeFailed},
	{regexp.MustCompile(`dial tcp: lookup |no such host|parse "https:|invalid URL|invalid character .* in host name`), v1alpha1.ReasonNameResolutionFailed},
	{regexp.MustCompile(`dial tcp \S+: connect: |invalid port|network is unreachable|no route to host`), v1alpha1.ReasonConnectionFailed},
	{regexp.MustCompile(`EOF|connection reset by peer`), v1alpha1.ReasonConnectionClosed},
}

func refusalOf(words string) v1alpha1.Reason {
	words = strings.ReplaceAll(words, "\n", " ")
	for _, r := range refusals {
		if r.words.MatchString(words) {
			return r.reason
		}
	}
	return ""
}
