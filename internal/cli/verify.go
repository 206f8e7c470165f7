package cli

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/audit"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/report"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
)

type verifyOptions struct {
	node, address, cert, ca string
	caGiven                 bool
	port                    int32
	what                    whatFlag
	output                  outputFlag
	streams                 Streams
}

func newVerifyCommand(streams Streams) *cobra.Command {
	o := &verifyOptions{streams: streams}
	cmd := &cobra.Command{
		Use:   "verify --node NAME --address ADDRESS --cert FILE",
		Short: "Judge one certificate file the way a probe is judged, without any connection",
		Example: `  kubelet-cert-auditor verify --node worker-1 --address 10.0.0.11 \
    --cert /var/lib/kubelet/pki/kubelet-server-current.pem --kubelet-certificate-authority ca.crt`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.caGiven = cmd.Flags().Changed(caFlag)
			if err := o.validate(); err != nil {
				return err
			}
			return o.run(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.node, "node", "", "the Node's name (required)")
	flags.StringVar(&o.address, "address", "", "the address that kube-apiserver dials: an IP address or a host name (required)")
	flags.StringVar(&o.cert, "cert", "", "a PEM file with the certificate, and any intermediates after it (required)")
	flags.Int32Var(&o.port, "kubelet-port", 10250, "the kubelet's port, for the message")
	addCAFlag(flags, &o.ca)
	o.what.addFlags(flags)
	o.output.addFlags(flags)
	completeValues(cmd)
	return cmd
}

func (o *verifyOptions) validate() error {
	var problems []error
	problems = append(problems, validateRequired("--node", o.node)...)
	problems = append(problems, validateRequired("--address", o.address)...)
	problems = append(problems, validateRequired("--cert", o.cert)...)
	problems = append(problems, validatePort("--kubelet-port", o.port)...)
	problems = append(problems, o.what.validate()...)
	problems = append(problems, o.output.validate()...)
	return errors.Join(problems...)
}

func (o *verifyOptions) run(ctx context.Context) error {
	chain, err := readChain(o.cert)
	if err != nil {
		return fmt.Errorf("--cert=%q: %w", o.cert, err)
	}
	bundle, _, err := loadCA(ctx, o.ca, o.caGiven, nil)
	if err != nil {
		return err
	}
	looked := audit.Looked{
		Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: o.node}},
		Expectation: verdict.Expectation{
			NodeName: o.node,
			Endpoint: verdict.Endpoint{AddressType: "--address", Host: o.address, Port: o.port},
		},
		Observation: observationOf(chain),
	}
	opts := audit.Options{Policy: verdict.Policy{Bundle: bundle}, What: verdict.What(o.what), Clock: clock.RealClock{}}
	looked.Verdict = verdict.Judge(looked.Expectation, looked.Observation, opts.Policy, opts.Clock.Now())
	result := audit.NewReport(looked, opts)
	if err := report.Render(o.streams.Out, result, report.Format(o.output)); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return answerOf(result.Answer)
}

// observationOf is what a handshake with the file's owner would show, who is
// taken to hold the key.
func observationOf(chain []*x509.Certificate) verdict.Observation {
	// crypto/tls ends a handshake on such a key before it verifies anything, so
	// no rule about chains knows of it.
	const maxRSABits = 8192
	for _, c := range chain {
		if key, ok := c.PublicKey.(*rsa.PublicKey); ok && key.N.BitLen() > maxRSABits {
			return verdict.Observation{
				Outcome: verdict.OutcomeBadCertificate,
				Detail:  fmt.Sprintf("tls: server sent certificate containing RSA key larger than %d bits", maxRSABits),
			}
		}
	}
	switch key := chain[0].PublicKey.(type) {
	case *rsa.PublicKey, *ecdsa.PublicKey, ed25519.PublicKey:
	default:
		return verdict.Observation{
			Outcome: verdict.OutcomeBadCertificate,
			Detail:  fmt.Sprintf("tls: server's certificate contains an unsupported type of public key: %T", key),
		}
	}
	return verdict.Observation{Outcome: verdict.OutcomeCompleted, KeyProven: true, Chain: chain}
}

// readChain reads the certificates of a PEM file; other blocks, such as the key
// that kubelets keep in the same file, are passed over.
func readChain(path string) ([]*x509.Certificate, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, withoutPath(err)
	}
	var chain []*x509.Certificate
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d: %w", len(chain)+1, err)
		}
		chain = append(chain, certificate)
	}
	if len(chain) == 0 {
		return nil, errors.New("it holds no PEM certificate")
	}
	return chain, nil
}
