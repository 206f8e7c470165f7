package fieldcases

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/audit"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/kubelet"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/trust"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/certs"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/fleet"
)

const (
	verified = "True Verified"
	address  = "False AddressMismatch"
	unknown  = "False UnknownAuthority"
	name     = "False CommonNameMismatch"

	ready, notReady, dontKnow = verdict.Ready, verdict.NotReady, verdict.ReadinessUnknown
)

func noIPs(c *x509.Certificate) { c.IPAddresses = nil }

func called(commonName string) func(*x509.Certificate) {
	return func(c *x509.Certificate) { c.Subject.CommonName = commonName }
}

// ownCA is a root that departs from a good one.
func (s *scene) ownCA(commonName string, change func(*x509.Certificate)) *certs.CA {
	s.Helper()
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: commonName}, NotBefore: s.world.Now.Add(-time.Hour), NotAfter: s.world.Now.Add(9000 * time.Hour),
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true,
	}
	if change != nil {
		change(template)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		s.Fatal(err)
	}
	self := &certs.CA{Certificate: template, Key: key}
	certificate, err := x509.ParseCertificate(self.IssueFor(template, key.Public()))
	if err != nil {
		s.Fatal(err)
	}
	return &certs.CA{Certificate: certificate, Key: key}
}

var tests = map[string]func(*scene){
	"san-01": func(s *scene) {
		n := s.node("n1", noIPs)
		ip := n.Status.Addresses[1].Address
		s.is("n1", address, fmt.Sprintf("dialled InternalIP %q", ip), `the certificate is for "n1"`, "no IP SANs")
		if s.report().Summary.Checks[v1alpha1.CheckCommonName].Pass != 1 {
			s.Error("the common name is right")
		}
		s.answers(notReady, notReady, ready)
	},
	"san-03": func(s *scene) {
		s.node("n1", func(c *x509.Certificate) {
			c.DNSNames, c.IPAddresses, c.ExtKeyUsage = nil, nil, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		})
		s.is("n1", address, "KeyUsage: the extended key usages lack server authentication", "no DNS or IP SAN at all, as a client certificate has not")
	},
	"san-04": func(s *scene) {
		s.node("n1", func(c *x509.Certificate) { c.DNSNames = append(c.DNSNames, c.IPAddresses[0].String()); noIPs(c) })
		s.is("n1", address, "the IP address stands in a DNS SAN")
	},
	"san-05": func(s *scene) {
		s.node("n1", func(c *x509.Certificate) {
			c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(203, 0, 113, 7)}
		})
		s.is("n1", address, "the certificate is for 127.0.0.1, 203.0.113.7")
	},
	"san-06": func(s *scene) {
		holder, other := s.node("n1", nil), s.node("n2", nil)
		floating := s.id("floating")
		behind := func(id string) { // whose kubelet answers at the floating address
			template := certs.Template(certs.Identity{NodeName: id, IP: s.id(id).IP})
			s.fleet.Set(floating.IP, fleet.Behaviour{Served: s.world.CA.Issue(template)})
		}
		own := holder.Status.Addresses[1].Address
		behind("n1")
		holder.Status.Addresses[1].Address = floating.IP.String()
		before := kubelet.IdentityOf(holder)
		s.is("n1", address)
		s.is("n2", verified)
		behind("n2")
		holder.Status.Addresses[1].Address, other.Status.Addresses[1].Address = own, floating.IP.String()
		s.result = nil
		s.is("n1", verified)
		s.is("n2", address)
		if kubelet.IdentityOf(holder) == before {
			s.Error("a verdict about another address would still count")
		}
	},
	"san-08": func(s *scene) {
		first, second := s.node("n1", func(c *x509.Certificate) { c.IPAddresses = []net.IP{net.IPv4(192, 168, 1, 14)} }), s.node("n2", nil)
		second.Status.Addresses = first.Status.Addresses
		s.is("n1", address)
		s.is("n2", address)
		s.finds(audit.FindingSharedAddress, "n1", "n2")
	},
	"san-09": func(s *scene) {
		master := s.id("master1")
		template := certs.Template(master)
		template.DNSNames = []string{"kubernetes", "kubernetes.default.svc", "master1", "localhost"}
		served := s.world.CA.Issue(template)
		s.serve(master, fleet.Behaviour{Served: served})
		s.serve(s.id("worker3"), fleet.Behaviour{Served: served})
		s.is("master1", verified)
		s.is("worker3", address, `CommonName: the common name is "system:node:master1"`)
		s.finds(audit.FindingSharedCertificate, "master1", "worker3")
	},
	"san-11": func(s *scene) {
		s.prefer = []corev1.NodeAddressType{corev1.NodeHostName}
		template := certs.Template(s.id("node-a"))
		noIPs(template)
		if v := s.judged(nodeAt("node-a", hostname("NODE-A")), template); v.Status != verdict.True {
			s.Error(v.Message)
		}
	},
	"san-15": func(s *scene) {
		template := certs.Template(s.id("n1"))
		template.IPAddresses = []net.IP{net.ParseIP("2001:db8::11")}
		for _, form := range []string{"2001:db8:0:0:0:0:0:11", "2001:DB8::11", "2001:db8::11"} {
			if v := s.judged(nodeAt("n1", internalIP(form)), template); v.Status != verdict.True {
				s.Error(v.Message)
			}
		}
	},
	"san-16": func(s *scene) {
		template := certs.Template(s.id("n1"))
		template.IPAddresses = []net.IP{net.ParseIP("fdec:c5cc::189")}
		node := nodeAt("n1", internalIP("fdec:c5cc::189"))
		if v := s.judged(node, template); v.Status != verdict.True {
			s.Error(v.Message)
		}
		if got := kubelet.EndpointOf(node, kubelet.Options{PreferredAddressTypes: s.prefer}).HostPort(); got != "[fdec:c5cc::189]:10250" {
			s.Error(got)
		}
	},
	"san-18": func(s *scene) {
		template := certs.Template(s.id("n1"))
		template.IPAddresses = []net.IP{net.IPv4(10, 0, 0, 11)}
		if v := s.judged(nodeAt("n1", internalIP("2001:db8::11"), internalIP("10.0.0.11")), template); v.Reason != v1alpha1.ReasonAddressMismatch {
			s.Errorf("%s: %s", v.Reason, v.Message)
		}
	},
	"san-19": func(s *scene) {
		s.node("n1", func(c *x509.Certificate) {
			c.IPAddresses = nil
			for i := range 250 {
				c.IPAddresses = append(c.IPAddresses, net.IPv4(10, 10, 1, byte(i)))
			}
		})
		s.is("n1", address, "and 247 more")
	},
	"san-20": func(s *scene) {
		s.prefer = []corev1.NodeAddressType{corev1.NodeHostName}
		template := certs.Template(s.id("n1"))
		template.Subject.CommonName, template.DNSNames, template.IPAddresses = "n1", nil, nil
		v := s.judged(nodeAt("n1", hostname("n1")), template)
		if v.Reason != v1alpha1.ReasonAddressMismatch || !strings.Contains(v.Hint, "in the common name alone") {
			s.Errorf("%s: %s", v.Reason, v.Message)
		}
	},

	"addr-01": func(s *scene) {
		s.node("n1", nil).Status.Addresses = nil
		s.is("n1", "Unknown NoAddress")
		if s.fleet.Total().Connections != 0 {
			s.Error("something was dialled")
		}
		s.answers(dontKnow, dontKnow, dontKnow)
	},
	"addr-03": func(s *scene) {
		none, other := nodeAt("n1", internalIP("10.0.0.11")), nodeAt("n2", internalIP("10.0.0.12"))
		none.Status.DaemonEndpoints.KubeletEndpoint.Port, other.Status.DaemonEndpoints.KubeletEndpoint.Port = 0, 3000
		for node, want := range map[*corev1.Node]int32{none: 10250, other: 3000} {
			if got := kubelet.EndpointOf(node, kubelet.Options{PreferredAddressTypes: s.prefer}).Port; got != want {
				s.Errorf("port %d, want %d", got, want)
			}
		}
	},
	"addr-04": func(s *scene) {
		n := s.node("edge", nil) // its port is any but 10250
		if n.Status.DaemonEndpoints.KubeletEndpoint.Port == 10250 {
			s.Fatal("the test needs another port")
		}
		s.is("edge", verified)
	},
	"addr-05": func(s *scene) {
		m1 := s.node("m1", nil)
		w1 := s.node("w1", nil)
		w1.Status.Addresses = m1.Status.Addresses
		s.is("m1", verified)
		s.is("w1", name, `this is the identity of another node, "m1"`)
		s.finds(audit.FindingOtherIdentity, "w1", "m1")
		s.finds(audit.FindingSharedAddress, "w1", "m1")
		s.answers(notReady, ready, notReady)
	},
	"addr-07": func(s *scene) {
		s.remote = true
		s.node("n1", nil)
		s.is("n1", "Unknown AddressNotAllowed")
		if s.fleet.Total().Connections != 0 {
			s.Error("it was dialled")
		}
	},
	"addr-08": func(s *scene) {
		s.prefer = []corev1.NodeAddressType{corev1.NodeHostName, corev1.NodeInternalIP}
		s.node("n1", nil).Status.Addresses[0].Address = "my-node-1.invalid"
		s.is("n1", "Unknown NameResolutionFailed")
		if s.fleet.Total().Connections != 0 {
			s.Error("another address was dialled")
		}
	},
	"addr-11": func(s *scene) {
		s.prefer = []corev1.NodeAddressType{corev1.NodeHostName}
		id := s.id("")
		id.NodeName = id.IP.String()
		template := certs.Template(id)
		template.DNSNames = nil
		s.serve(id, fleet.Behaviour{Served: s.world.CA.Issue(template)})
		s.is(id.NodeName, verified)
	},

	"cn-01": func(s *scene) {
		s.defect("n1", "self-signed-named")
		s.is("n1", unknown, "the kubelet's self-signed fallback; set serverTLSBootstrap: true")
	},
	"cn-02": func(s *scene) {
		ca := s.ownCA("win1@1715", nil)
		s.issued("win1", ca, func(c *x509.Certificate) { c.Subject = pkix.Name{CommonName: "win1@1715"}; noIPs(c) })
		s.is("win1", address, "Chain: no path", `CommonName: the common name is "win1@1715"`, "self-signed fallback")
	},
	"cn-03": func(s *scene) {
		for _, n := range []string{"n1", "n2"} {
			s.node(n, func(c *x509.Certificate) { c.Subject = pkix.Name{CommonName: n} })
		}
		s.is("n1", name, "a bare node name is what k3s, RKE2 and kops issue")
		s.is("n2", name)
		s.finds(audit.FindingBareNodeNames, "n1", "n2")
		s.answers(notReady, ready, notReady)
	},
	"cn-04": func(s *scene) {
		s.issued("old", s.ownCA("old", nil), func(c *x509.Certificate) {
			c.Subject, c.NotAfter = pkix.Name{CommonName: "old"}, s.world.Now.Add(20*365*24*time.Hour)
		})
		s.node("new", nil)
		s.is("old", unknown)
		s.is("new", verified)
		s.answers(notReady, notReady, notReady)
	},
	"cn-05": func(s *scene) {
		s.node("n1", called("kubelet"))
		s.is("n1", name, `the common name is "kubelet", not "system:node:n1"`)
		s.answers(notReady, ready, notReady)
	},
	"cn-06": func(s *scene) {
		s.node("test00000a", called("system:node:test00000A"))
		s.is("test00000a", name, "it differs in case only")
	},
	"cn-07": func(s *scene) {
		s.node("ip-192-168-6-91.eu-central-1.compute.internal", called("system:node:ip-192-168-6-91"))
		s.is("ip-192-168-6-91.eu-central-1.compute.internal", name)
	},
	"cn-09": func(s *scene) {
		s.node("n1", func(c *x509.Certificate) { c.Subject = pkix.Name{} })
		s.is("n1", name, "the certificate has no common name")
	},
	"cn-11": func(s *scene) {
		long, cut := strings.Repeat("n", 60), strings.Repeat("m", 60)
		s.node(long, nil)
		s.node(cut, called(("system:node:" + cut)[:64]))
		s.is(long, verified)
		s.is(cut, name, "cut off at 64 characters")
		s.finds(audit.FindingLongNodeNames, long, cut)
	},
	"cn-14": func(s *scene) {
		s.node("new-node", func(c *x509.Certificate) {
			c.Subject.CommonName, c.DNSNames = "system:node:old-node", []string{"old-node"}
		})
		s.is("new-node", name, `this is the identity of another node, "old-node"`)
		s.answers(notReady, ready, notReady)
	},
	"cn-15": func(s *scene) {
		s.node("worker-0", func(c *x509.Certificate) { c.ExtKeyUsage = append(c.ExtKeyUsage, x509.ExtKeyUsageClientAuth) })
		s.is("worker-0", verified)
		s.answers(ready, ready, ready)
	},

	"chain-01": func(s *scene) {
		s.issued("n1", s.world.UnknownCA, nil)
		s.is("n1", unknown, `"CN=another-cluster"`)
	},
	"chain-02": func(s *scene) {
		s.node("old", nil)
		s.issued("new", s.world.UnknownCA, nil)
		s.is("old", verified)
		s.is("new", unknown)
		s.trusts(s.world.CA, s.world.UnknownCA)
		s.is("new", verified)
	},
	"chain-03": func(s *scene) {
		s.issued("new-key", s.world.TwinCA, nil)
		s.node("old-key", nil)
		s.is("new-key", unknown, "a CA of that very name, but with another key")
		for _, order := range [][]*certs.CA{{s.world.CA, s.world.TwinCA}, {s.world.TwinCA, s.world.CA}} {
			s.trusts(order...)
			s.is("new-key", verified)
			s.is("old-key", verified)
		}
	},
	"chain-04": func(s *scene) {
		s.issued("leaf-alone", s.world.Intermediate, nil)
		s.issued("with-intermediate", s.world.Intermediate, nil, s.world.Intermediate)
		s.is("leaf-alone", unknown, `neither the kubelet serves nor the trust bundle holds the issuer "CN=kubelet-serving"`)
		s.is("with-intermediate", verified)
		s.trusts(s.world.CA, s.world.Intermediate)
		s.is("leaf-alone", verified)
	},
	"chain-05": func(s *scene) {
		s.issued("n1", s.world.Intermediate, nil)
		s.trusts(s.world.Intermediate)
		s.is("n1", verified)
	},
	"chain-07": func(s *scene) {
		noBasics := s.ownCA("no basic constraints", func(c *x509.Certificate) { c.BasicConstraintsValid, c.IsCA = false, false })
		noSigning := s.ownCA("no signing", func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageDigitalSignature })
		s.issued("n1", noBasics, nil)
		s.issued("n2", noSigning, nil)
		s.trusts(noBasics, noSigning)
		s.is("n1", unknown, `the issuer "CN=no basic constraints" may not sign others`)
		s.is("n2", unknown, `the issuer "CN=no signing" may not sign others`)
	},
	"chain-08": func(s *scene) {
		s.node("n1", func(c *x509.Certificate) { c.SignatureAlgorithm = x509.ECDSAWithSHA1 })
		root := s.ownCA("SHA-1 root", func(c *x509.Certificate) { c.SignatureAlgorithm = x509.ECDSAWithSHA1 })
		s.issued("n2", root, nil)
		s.trusts(s.world.CA, root)
		s.is("n1", unknown, "the signature is made with ECDSA-SHA1, which is insecure")
		s.is("n2", verified)
	},
	"chain-11": func(s *scene) {
		s.node("n1", nil)
		bad := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("cannot be parsed")})
		s.bundle = append(bad, s.bundle...)
		s.is("n1", verified)
		if w := s.report().TrustBundle.Warnings; len(w) != 1 || !strings.Contains(w[0], "block 1 could not be parsed and was skipped") {
			s.Errorf("warnings: %q", w)
		}
		if _, err := trust.Parse("the test's", bad); err == nil {
			s.Error("a bundle of nothing is no bundle")
		}
	},
	"chain-16": func(s *scene) {
		var names []string
		for i := range 3 {
			names = append(names, fmt.Sprintf("n%d", i))
			s.issued(names[i], s.world.UnknownCA, nil)
		}
		s.is("n0", unknown)
		f := s.finds(audit.FindingIssuerNotInBundle, names...)
		if s.report().Findings[0].Kind != f.Kind || !strings.Contains(f.Message, "is this the CA that kube-apiserver uses for kubelets?") {
			s.Errorf("%+v", s.report().Findings)
		}
		s.answers(notReady, notReady, dontKnow)
	},

	"time-01": func(s *scene) {
		id := s.id("n1")
		fresh := s.world.CA.Issue(certs.Template(id)).TLS()
		template := certs.Template(id)
		template.NotAfter = s.world.Now.Add(-time.Minute)
		s.serve(id, fleet.Behaviour{Served: s.world.CA.Issue(template), Configure: func(c *tls.Config) {
			old := c.Certificates[0]
			c.GetCertificate = func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
				if hello.ServerName == "" {
					return &old, nil
				}
				return &fresh, nil
			}
		}})
		s.is("n1", "False CertificateExpired")
	},
	"time-02": func(s *scene) {
		begin := s.world.Now.Add(10 * time.Minute)
		s.node("n1", func(c *x509.Certificate) { c.NotBefore = begin })
		s.is("n1", "False CertificateNotYetValid")
		template := certs.Template(s.id("n2"))
		template.NotBefore = begin
		if v := s.judged(nodeAt("n2", internalIP("10.0.0.11")), template); !v.NextLook.Equal(begin) {
			s.Errorf("the next look is at %s, not at %s", v.NextLook, begin)
		}
	},
	"time-05": func(s *scene) {
		s.node("n1", func(c *x509.Certificate) {
			const day = 24 * time.Hour
			c.NotBefore, c.NotAfter = s.world.Now.Add(-38*day), s.world.Now.Add(7*day)
		})
		s.is("n1", verified)
		if len(s.report().Findings) != 0 {
			s.Errorf("%+v", s.report().Findings)
		}
	},
	"time-06": func(s *scene) {
		n := s.node("n1", nil)
		s.is("n1", verified)
		id := certs.Identity{NodeName: "n1", IP: s.id("").IP}
		template := certs.Template(id)
		template.Subject.CommonName = "other"
		s.fleet.Set(id.IP, fleet.Behaviour{Served: s.world.CA.Issue(template)})
		n.Status.Addresses[1].Address = id.IP.String()
		s.result = nil
		s.is("n1", name)
		if n := s.fleet.Total().Connections; n != 2 {
			s.Errorf("%d connections for two probes", n)
		}
	},

	"eku-01": func(s *scene) {
		s.node("n1", func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} })
		s.is("n1", "False KeyUsageMismatch")
	},
	"crypto-01": func(s *scene) {
		id := s.id("n1")
		served := s.world.CA.Issue(certs.Template(id))
		for served.Leaf().SerialNumber.BitLen()%8 == 0 { // DER puts a zero before such
			served = s.world.CA.Issue(certs.Template(id))
		}
		at := bytes.Index(served.Chain[0], served.Leaf().SerialNumber.Bytes())
		served.Chain[0][at] = 0x80 // the sign
		s.serve(id, fleet.Behaviour{Served: served})
		s.is("n1", "False CertificateInvalid", "negative serial number")
	},
	"crypto-04": func(s *scene) {
		_, edwards, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			s.Fatal(err)
		}
		large, err := ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
		if err != nil {
			s.Fatal(err)
		}
		one, two := s.id("n1"), s.id("n2")
		s.serve(one, fleet.Behaviour{Served: certs.Served{Key: edwards, Chain: [][]byte{s.world.CA.IssueFor(certs.Template(one), edwards.Public())}}})
		s.serve(two, fleet.Behaviour{Served: certs.Served{Key: large, Chain: [][]byte{s.world.CA.IssueFor(certs.Template(two), large.Public())}}})
		s.is("n1", verified)
		s.is("n2", verified)
	},
	"crypto-06": func(s *scene) {
		id := s.id("n1")
		s.serve(id, fleet.Behaviour{Served: s.world.CA.Issue(certs.Template(id)), Configure: func(c *tls.Config) {
			c.MaxVersion, c.CipherSuites = tls.VersionTLS12, []uint16{tls.TLS_RSA_WITH_AES_128_GCM_SHA256}
		}})
		s.is("n1", "False HandshakeFailed", "handshake failure")
	},
	"crypto-07": func(s *scene) {
		s.defect("n1", "tls11-only")
		s.is("n1", "False HandshakeFailed", "protocol version")
	},

	"srv-01": func(s *scene) {
		s.defect("n1", "no-certificate")
		s.is("n1", "False NoServingCertificate", "kubectl get csr")
	},
	"srv-02": func(s *scene) {
		s.defect("n1", "plain-http")
		s.is("n1", "False NotTLS")
	},
	"srv-04": func(s *scene) {
		s.defect("n1", "refused").Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
		s.is("n1", "Unknown ConnectionFailed", "connection refused", "the Node is not Ready either")
		s.answers(dontKnow, dontKnow, dontKnow)
	},
	"srv-06": func(s *scene) {
		s.timeout = 700 * time.Millisecond
		s.defect("n1", "drops-large-hello")
		s.is("n1", "Unknown ProbeTimeout", "by which it would be True Verified")
		s.finds(audit.FindingLargeHelloDropped, "n1")
	},

	"path-01": func(s *scene) {
		if os.Getenv("HTTPS_PROXY") == "" {
			s.Fatal("there is no proxy to ignore")
		}
		s.node("n1", nil)
		s.is("n1", verified)
	},
	"path-04": func(s *scene) {
		s.issued("vk", s.world.UnknownCA, called("kube-apiserver")).Labels["type"] = "virtual-kubelet"
		s.node("n1", nil)
		s.is("vk", unknown)
		s.finds(audit.FindingVirtualKubelets, "vk")
		if s.report().Readiness != notReady {
			s.Error("it counts like any other")
		}
	},
	"path-06": func(s *scene) {
		s.bundle = nil
		s.node("n1", nil)
		s.node("n2", nil)
		s.node("n3", noIPs)
		s.is("n1", "Unknown NoTrustBundle")
		s.is("n3", address)
		s.finds(audit.FindingSameIssuer, "n1", "n2", "n3")
		if checks := s.report().Summary.Checks; checks[v1alpha1.CheckChain].NotRun != 3 || checks[v1alpha1.CheckCommonName].Pass != 3 {
			s.Errorf("%+v", checks)
		}
	},

	"roll-01": func(s *scene) {
		for i := range 48 {
			s.node(fmt.Sprintf("good-%d", i), nil)
		}
		s.defect("bad-1", "self-signed")
		s.defect("bad-2", "self-signed")
		s.finds(audit.FindingSelfSigned, "bad-1", "bad-2")
		r := s.report()
		if r.Readiness != notReady || r.Nodes[0].Name != "bad-1" || r.Nodes[1].Name != "bad-2" || r.Summary.Verified != 48 {
			s.Errorf("%s, %s and %s first, %d verified", r.Readiness, r.Nodes[0].Name, r.Nodes[1].Name, r.Summary.Verified)
		}
	},
	"roll-05": func(s *scene) {
		n := s.node("n1", noIPs)
		s.is("n1", address)
		ip := n.Status.Addresses[1].Address
		id := certs.Identity{NodeName: "n1", IP: netip.MustParseAddr(ip)}
		s.fleet.Set(id.IP, fleet.Behaviour{Served: s.world.CA.Issue(certs.Template(id))}) // the kubelet loads it
		s.result = nil
		s.is("n1", verified)
	},
}
