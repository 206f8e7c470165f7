// Package fieldcases holds what happened to people who run clusters, and the
// product to the right answer. Its list is docs/field-cases.md; its tests bear
// the cases' names.
package fieldcases

// Case is one thing that happened.
type Case struct {
	// ID is the name of its test, in TestFieldCases unless At says otherwise.
	ID string
	// Source is where it was reported: GitHub repositories and numbers.
	Source string
	// Happened and Answer, each in a sentence or two.
	Happened, Answer string
	// Disagrees is where the right answer is not what was expected; mostly
	// because of what crypto/x509 does, which kube-apiserver leaves the verifying
	// to. Empty where they agree.
	Disagrees string
	// At is the test elsewhere that covers it, Also one that covers more of it
	// than the one here.
	At, Also *Place
	// Why there is no test; empty where there is one.
	Why string
}

// here says that its test is in TestFieldCases.
func (c Case) here() bool { return c.At == nil && c.Why == "" }

// Place is a test: a file of the repository and the words that name the test in
// it.
type Place struct{ File, Name string }

// Kind is a group of cases.
type Kind struct {
	Title string
	Cases []Case
}

// All lists every case.
func All() []Kind {
	return []Kind{
		{"Subject alternative names", sanCases()}, {"Addresses", addressCases()}, {"Common names", commonNameCases()},
		{"Chains and bundles", chainCases()}, {"Times", timeCases()}, {"Usages, keys and TLS", cryptoCases()},
		{"Servers", serverCases()}, {"Paths", pathCases()}, {"Requests for certificates (the review; no webhook asks it yet)", requestCases()},
		{"Conditions, Events, metrics (and their scale)", recordCases()}, {"Rollout", rolloutCases()},
	}
}

func at(file, name string) *Place { return &Place{file, name} }

func sanCases() []Case {
	return []Case{
		{ID: "san-01", Source: "kubernetes/kubernetes#62939, kubernetes-sigs/kubespray#6760",
			Happened: "The CA was set on kube-apiserver; the certificates named hosts, and IP addresses were dialled.",
			Answer:   "False `AddressMismatch`, with the address dialled and the hint that there are no IP SANs; the common name passes by itself."},
		{ID: "san-03", Source: "kelseyhightower/kubernetes-the-hard-way#146, kubernetes/kubernetes#50371",
			Happened: "A kubelet served its client certificate, with the right common name and no SAN.",
			Answer:   "False `AddressMismatch`, which comes before the usage; `KeyUsage` fails too and is in the message."},
		{ID: "san-04", Source: "Azure/AgentBaker#1451",
			Happened: "A script wrote the IP address into a DNS SAN, where tools show it and Go does not look for it.",
			Answer:   "False `AddressMismatch`, with that hint."},
		{ID: "san-05", Source: "rancher/rke2#5163, vitobotta/hetzner-k3s#160",
			Happened: "The certificate was for the public address; later a cloud controller published a private one.",
			Answer:   "False `AddressMismatch`, with both the names and the address dialled."},
		{ID: "san-06", Source: "kube-vip/kube-vip#741",
			Happened: "A floating address became the InternalIP of whichever node held it, and the failure moved with it.",
			Answer:   "One node is False; a change of addresses drops the verdict at once and brings a new probe.",
			Also:     at("controllers/node_test.go", "is judged again at once when its address changes, without the verdict of the old one")},
		{ID: "san-08", Source: "canonical/microk8s#4344",
			Happened: "An add-on gave every node the same further address, which became the InternalIP of all.",
			Answer:   "False `AddressMismatch`, and the finding `SharedAddress`."},
		{ID: "san-09", Source: "kubernetes-sigs/kubespray#2735",
			Happened: "One certificate was copied to all kubelets.",
			Answer:   "The node that it is for is verified, the others are not; findings `SharedCertificate` and `OtherNodesIdentity`."},
		{ID: "san-11", Source: "siderolabs/talos-cloud-controller-manager#360",
			Happened: "Host name and DNS SAN differ in case only.",
			Answer:   "True: host names compare without case, the common name does not."},
		{ID: "san-15", Source: "gardener/gardener#10876",
			Happened: "An IPv6 address was written in another form than in the certificate.",
			Answer:   "True: addresses compare as values."},
		{ID: "san-16", Source: "kubernetes-sigs/node-feature-discovery#1729, kubernetes/kubernetes#107743",
			Happened: "An IPv6 address was put before a port without brackets.",
			Answer:   "Dialled with brackets, verified without."},
		{ID: "san-18", Source: "kubermatic/kubeone#2199, kubernetes/kops#12188",
			Happened: "A second address family came to be the first InternalIP before the new certificate was approved.",
			Answer:   "False `AddressMismatch` for the address that kube-apiserver dials now, with a hint to the pending request.",
		},
		{ID: "san-19", Source: "postfinance/kubelet-csr-approver#70",
			Happened:  "A certificate had hundreds of names, and so had every message about it.",
			Answer:    "Four names and the number of the others; a message has at most 1,024 bytes.",
			Disagrees: "crypto/x509 gives a mere count from 100 names on, not only above 100."},
		{ID: "san-20", Source: "kubernetes/kubernetes#44151, kubernetes/kubernetes#108940",
			Happened: "An old CA wrote the host name into the common name alone.",
			Answer:   "False `AddressMismatch`, with that hint; crypto/x509 speaks of the legacy Common Name."},
	}
}

func addressCases() []Case {
	return []Case{
		{ID: "addr-01", Source: "kubernetes/cloud-provider-openstack#709, kubernetes/kubernetes#120727",
			Happened: "The cloud controller had not filled in any address yet.",
			Answer:   "Unknown `NoAddress`, and nothing is dialled until there is an address."},
		{ID: "addr-03", Source: "krustlet/krustlet#44",
			Happened: "One Node reported port 0, another port 3000.",
			Answer:   "10250 and 3000 are dialled."},
		{ID: "addr-04", Source: "kubeedge/kubeedge#3197, kubeedge/kubeedge#1876",
			Happened: "Edge nodes listen on a port of their own, and a tool dialled 10250.",
			Answer:   "The reported port is dialled."},
		{ID: "addr-05", Source: "kubernetes/kubernetes#45583",
			Happened: "All nodes reported the same NAT address, which led each client to its own host.",
			Answer:   "The node that answers is verified, the other is False `CommonNameMismatch` with the name of the one that answered; findings `OtherNodesIdentity` and `SharedAddress`."},
		{ID: "addr-07", Source: "kubernetes/kubernetes#55960",
			Happened: "A node registered a loopback address, which would have the control plane talk to itself.",
			Answer:   "Unknown `AddressNotAllowed`; it is not dialled."},
		{ID: "addr-08", Source: "kubernetes/kubernetes#22770",
			Happened: "The preferred Hostname is a name that no DNS server knows.",
			Answer:   "Unknown `NameResolutionFailed`; no other address is tried, and a hint names the order of preference."},
		{ID: "addr-09", Source: "kubernetes-sigs/metrics-server#131, kubernetes-sigs/metrics-server#767",
			Happened:  "The name resolves on the control plane's hosts and not in Pods.",
			Answer:    "Unknown, never False, since it cannot be told apart from the last one; `config/overlays/control-plane` runs the manager with the host's resolver.",
			Disagrees: "Dialling one address and verifying another was expected as a choice; there is none, since kube-apiserver never does so.",
			Also:      at("test/config/config_test.go", "runs a Pod on the host's network, which takes the privileged namespace that it brings")},
		{ID: "addr-11", Source: "kontena/kubelet-rubber-stamp#22",
			Happened: "Node name and Hostname are an IP address.",
			Answer:   "True: a host that is an IP address is matched against IP SANs."},
	}
}

func commonNameCases() []Case {
	return []Case{
		{ID: "cn-01", Source: "kubernetes/kops#5439, k0sproject/k0s#83",
			Happened: "The kubelet's self-signed pair, host@timestamp.",
			Answer:   "False `UnknownAuthority`, with the hint to set serverTLSBootstrap."},
		{ID: "cn-02", Source: "canonical/microk8s#4522",
			Happened: "Windows workers served a self-signed certificate with the host name only.",
			Answer:   "False `AddressMismatch`, as kube-apiserver says first; the chain and the common name fail too and are in the message."},
		{ID: "cn-03", Source: "rancher/rke2#5163",
			Happened: "k3s and RKE2 issue the bare node name.",
			Answer:   "False `CommonNameMismatch`: passes today, breaks with the check; finding `BareNodeNames`."},
		{ID: "cn-04", Source: "Azure/AgentBaker#1451, Azure/AKS#4009",
			Happened: "Old nodes had self-signed certificates of 20 years, new ones came from the signer.",
			Answer:   "The old ones are False, with the hint that their own keys signed them; finding `SelfSignedFallback`. The new ones are verified."},
		{ID: "cn-05", Source: "kubernetes/kubernetes#133001",
			Happened: "All certificates had the common name `kubelet`.",
			Answer:   "False `CommonNameMismatch`."},
		{ID: "cn-06", Source: "kubernetes/kops#16464, Azure/aks-engine#935",
			Happened: "Instance names end in capitals, Node names do not.",
			Answer:   "False `CommonNameMismatch`, with the hint that it is the case alone."},
		{ID: "cn-07", Source: "kubermatic/machine-controller#967, kubernetes/kops#7172",
			Happened: "The Node has the cloud's long name, the certificate the short one.",
			Answer:   "False `CommonNameMismatch`, with the hint that no part of a name will do."},
		{ID: "cn-09", Source: "KEP-4872, Azure/ARO-RP#1124",
			Happened: "The subject is empty.",
			Answer:   "False `CommonNameMismatch`, with that hint."},
		{ID: "cn-11", Source: "kyma-project/test-infra#2117, redpanda-data/redpanda#997",
			Happened: "A node name of 60 characters makes a common name beyond X.520's 64.",
			Answer:   "True, as Go has no limit; finding `LongNodeNames`. One that was cut off at 64 is False, with that hint."},
		{ID: "cn-14", Source: "KEP-4872",
			Happened: "An IP address was reused while the old node's certificate for it was still good.",
			Answer:   "False `CommonNameMismatch`, with the other node's name; finding `OtherNodesIdentity` while that node exists, `AbsentNodesIdentity` once it is gone."},
		{ID: "cn-15", Source: "kelseyhightower/kubernetes-the-hard-way",
			Happened: "One certificate for client and server, done right.",
			Answer:   "True."},
		{ID: "cn-16", Source: "siderolabs/talos#10394, kubermatic/kubermatic#4301",
			Happened: "kube-apiserver has no CA for kubelets and verifies nothing.",
			Answer:   "The answer is about what would happen: \"would break\", \"once the CN check is on\"."},
	}
}

func chainCases() []Case {
	return []Case{
		{ID: "chain-01", Source: "k3s-io/k3s#3244",
			Happened: "The signer used the client CA, and kube-apiserver trusted the server CA.",
			Answer:   "False `UnknownAuthority`, with the issuer's name."},
		{ID: "chain-02", Source: "okd-project/okd#1159",
			Happened: "After a recovery new nodes had a new signer, which the bundle lacked.",
			Answer:   "The new ones are False until the bundle has both; finding `SameIssuer` names their issuer."},
		{ID: "chain-03", Source: "rancher/rancher#18805, kubernetes/kubeadm#2015",
			Happened: "The CA got a new key under its old name.",
			Answer:   "False `UnknownAuthority`, with the hint that the key is another; with both in the bundle, in any order, True."},
		{ID: "chain-04", Source: "kubernetes/kubernetes#88744",
			Happened: "The kubelet served the leaf without its intermediate.",
			Answer:   "False `UnknownAuthority`, with the missing issuer; True if it is served or in the bundle."},
		{ID: "chain-05", Source: "kubernetes-client/python#2160",
			Happened: "The bundle held the intermediate alone.",
			Answer:   "True: any certificate of the bundle is an anchor."},
		{ID: "chain-07", Source: "kubernetes/kubernetes#59966",
			Happened: "The CA had no basic constraints, or no right to sign certificates.",
			Answer:   "False `UnknownAuthority`, with that hint; a root of version 1 will do."},
		{ID: "chain-08", Source: "kubernetes-sigs/descheduler#1265, kubernetes/kubernetes#108940",
			Happened: "The leaf was signed with SHA-1.",
			Answer:   "False `UnknownAuthority`, with that hint, for MD5 too; the signature of a root does not matter."},
		{ID: "chain-11", Source: "cert-manager/trust-manager#511, istio/istio#56815",
			Happened: "One CA of the bundle could not be parsed, and was skipped in silence.",
			Answer:   "The others count, and a warning names the one; what it issued is False `UnknownAuthority`; a bundle of such alone is an error."},
		{ID: "chain-12", Source: "client-go transport/ca_rotation.go",
			Happened: "The CA file was empty.",
			Answer:   "An error, exit code 3, and nothing is dialled; the manager keeps the last good bundle, and never takes the system's.",
			Also:     at("internal/trust/source_test.go", "TestFileThatCannotBeUsed")},
		{ID: "chain-13", Source: "kubernetes/kubernetes#46287, kubernetes/kubernetes#114588",
			Happened: "The CA file changed, and a running kube-apiserver may hold the old one.",
			Answer:   "A new bundle is taken over, a broken one is not; the report names the bundle's fingerprint.",
			At:       at("internal/trust/source_test.go", "TestStoreKeepsTheLastGoodBundleOfTheSameSource")},
		{ID: "chain-16", Source: "kubernetes/kubernetes#63164, Azure/AKS#4009",
			Happened:  "The wrong bundle was given, and every node seemed broken.",
			Answer:    "All are False, and the first finding is `IssuerNotInBundle`: is this the right CA?",
			Disagrees: "Exit code 2 or 3 was expected; it is 1, since by the bundle that was given each node would be refused."},
	}
}

func timeCases() []Case {
	return []Case{
		{ID: "time-01", Source: "kubernetes/kubernetes#133001, kubernetes/kubernetes#133654",
			Happened: "A kubelet served the old certificate to clients without SNI, and those dial by IP address.",
			Answer:   "What a client without SNI is shown is judged, as kube-apiserver would: False `CertificateExpired` by the address, True by the name."},
		{ID: "time-02", Source: "kubernetes/kubernetes#97680, linkerd/linkerd2#3980",
			Happened:  "By the verifier's clock the certificate was not valid yet.",
			Answer:    "False `CertificateNotYetValid`, and a look at NotBefore.",
			Disagrees: "The local time in the message was expected; a message holds no time, or it would change while the verdict does not."},
		{ID: "time-04", Source: "openshift/openshift-docs#86873",
			Happened: "A cluster slept beyond the lifetime of its certificates.",
			Answer:   "All are False `CertificateExpired`; each recovers by itself, with one Event per transition.",
			Also:     at("controllers/node_test.go", "flips within one interval of a new certificate, with one Event and one line in the log")},
		{ID: "time-05", Source: "kubernetes/kubernetes#138763, prometheus-community/helm-charts#6918",
			Happened: "An alert at seven days fired on healthy certificates of 45 days.",
			Answer:   "True, with nothing to warn of; the first NotAfter is a metric."},
		{ID: "time-06", Source: "kubernetes/kubernetes#114588",
			Happened: "Connections that were kept alive hid a change of the certificate.",
			Answer:   "Each probe is a new connection and a full handshake, also where the server offers to resume."},
	}
}

func cryptoCases() []Case {
	return []Case{
		{ID: "eku-01", Source: "kubernetes/kubernetes#70063", Happened: "The certificate was for clients only.", Answer: "False `KeyUsageMismatch`."},
		{ID: "crypto-01", Source: "caddyserver/caddy#7115", Happened: "The serial number was negative, which Go does not parse since 1.23.",
			Answer: "False `CertificateInvalid`: crypto/tls refuses it."},
		{ID: "crypto-04", Source: "Go crypto/tls", Happened: "Keys of Ed25519 and P-521.", Answer: "True."},
		{ID: "crypto-06", Source: "Azure/aks-engine#3979, kubernetes/kubernetes#83669", Happened: "The kubelet offered suites that Go no longer does.",
			Answer: "False `HandshakeFailed`, with the alert; so is a suite for RSA keys with an ECDSA key."},
		{ID: "crypto-07", Source: "kubernetes/kubernetes#70411", Happened: "The kubelet offered TLS 1.1 at most.", Answer: "False `HandshakeFailed`."},
	}
}

func serverCases() []Case {
	return []Case{
		{ID: "srv-01", Source: "kubernetes/kubeadm#591, awslabs/amazon-eks-ami#610", Happened: "The kubelet waited for its certificate and answered with internal_error.",
			Answer: "False `NoServingCertificate`, with a hint to the request; Unknown while the Node is young."},
		{ID: "srv-02", Source: "krustlet/krustlet#44", Happened: "The port spoke HTTP.", Answer: "False `NotTLS`."},
		{ID: "srv-03", Source: "kubernetes/kubernetes#71343", Happened: "Connections were made and never answered.",
			Answer: "Unknown `ProbeTimeout`; such peers hold up no other.", Also: at("internal/audit/tarpit_test.go", "TestTarpitsHoldNobodyUp")},
		{ID: "srv-04", Source: "kubeedge/kubeedge#5322", Happened: "Nobody listened.", Answer: "Unknown `ConnectionFailed`, and whether the Node is not Ready either."},
		{ID: "srv-06", Source: "golang/go#80573, aws/amazon-vpc-cni-k8s#3311", Happened: "A middlebox dropped the larger ClientHello of newer Go.",
			Answer: "Unknown `ProbeTimeout`, since kube-apiserver sends the same; a smaller one is tried, the message says what it got, finding `LargeClientHelloDropped`."},
		{ID: "srv-07", Source: "poseidon/typhoon#629, kubernetes/kubernetes#70411", Happened: "Health checks filled the kubelet's log with handshake errors.",
			Answer: "Probes of good and bad certificates leave no line, a thousand of a real kubelet neither.", Also: at("test/e2e/e2e_test.go", "logs nothing about a thousand probes")},
	}
}

func pathCases() []Case {
	return []Case{
		{ID: "path-01", Source: "k3s-io/k3s#6705, kubernetes/kubeadm#211", Happened: "HTTPS_PROXY sent kube-apiserver's traffic to a proxy.",
			Answer: "The probe takes no proxy; kube-apiserver's own is not visible from here."},
		{ID: "path-02", Source: "clastix/kamaji#1151", Happened: "Tunnel agents were broken while all certificates were fine.",
			Answer: "True: it is about certificates, which the documentation says; no report promises logs."},
		{ID: "path-04", Source: "interlink-hq/interLink#447, virtual-kubelet/virtual-kubelet#21", Happened: "Virtual kubelets served borrowed certificates.",
			Answer: "Judged like any other, and named in the finding `VirtualKubelets`."},
		{ID: "path-06", Source: "Azure/AKS#4009", Happened: "Nobody can say which CA a managed kube-apiserver uses.",
			Answer: "Without a CA the chain is not run and nobody is verified; names and times are judged; finding `SameIssuer`."},
	}
}

// requestCases belong to the review of CertificateSigningRequests.
func requestCases() []Case {
	review := at("internal/admission/review_test.go", "TestReview")
	return []Case{
		{ID: "csr-01", Source: "siderolabs/talos-cloud-controller-manager#360", Happened: "A node asked for another node's DNS names and for no IP address.", Answer: "Refused.", At: review},
		{ID: "csr-02", Source: "GHSA-87pw-5j2g-6376", Happened: "An approver took the requester's name from the request.", Answer: "Judged by the authenticated user alone.", At: review},
		{ID: "csr-04", Source: "siderolabs/talos-cloud-controller-manager#360", Happened: "A wildcard was asked for.", Answer: "Refused.", At: review},
		{ID: "csr-05", Source: "k0sproject/k0s#8333", Happened: "A node wrote the API server's address into its status and asked for it.", Answer: "Refused as `ReservedAddress`.", At: review},
		{ID: "csr-06", Source: "minio/operator#743, kubeflow/pipelines#7273", Happened: "Software that is no kubelet used the signer.", Answer: "Warned about, unless the spec says deny.", At: review},
		{ID: "csr-07", Source: "awslabs/amazon-eks-ami#610, k3s-io/k3s#3173", Happened: "Kubelets came with a wrong user name.", Answer: "Warned about, with both names.", At: review},
		{ID: "csr-08", Source: "openshift/cluster-machine-approver#321, kubernetes/kubernetes#130001", Happened: "The request came before the Node's addresses.", Answer: "Let through with a warning.", At: review},
		{ID: "csr-10", Source: "postfinance/kubelet-csr-approver#70", Happened: "An approver wanted names that resolve, and refused good nodes.", Answer: "Let through, without a look-up.", At: review},
		{ID: "csr-11", Source: "kontena/kubelet-rubber-stamp#22", Happened: "Requests with IP addresses alone, DNS names alone, or neither.", Answer: "The last one is refused.", At: review},
		{ID: "csr-12", Source: "kubernetes/website#41000", Happened: "Usages in all combinations.", Answer: "The two sets of the upstream signer are let through.", At: review},
		{ID: "csr-13", Source: "kubernetes/kubernetes pkg/apis/certificates/helpers.go", Happened: "More than one organization, or none.", Answer: "Refused.", At: review},
		{ID: "csr-16", Source: "kubernetes/kubernetes#126015", Happened: "Requests for other signers, and updates.", Answer: "Not asked about.", At: at("controllers/webhook_test.go", "is asked about new requests for its signer alone")},
		{ID: "csr-17", Source: "k3s-io/k3s#6815, cert-manager/approver-policy#907", Happened: "A webhook that was down kept nodes from joining.", Answer: "kube-apiserver goes on after at most three seconds, and the request is reviewed afterwards.", At: at("controllers/webhook_test.go", "that is away keeps nobody waiting, and the request is reviewed when it is back")},
	}
}

func recordCases() []Case {
	return []Case{
		{ID: "cond-01", Source: "kubernetes/node-problem-detector#423", Happened: "Conditions stayed on the Nodes after their writer was removed.",
			Answer: "`cleanup` and the audit's finalizer take them away, with the manager gone too.", At: at("controllers/audit_test.go", "deleted after the manager ends clean with cleanup, which may run again")},
		{ID: "cond-02", Source: "NVIDIA/NVSentinel#1673", Happened: "A check that was switched off left its last condition.",
			Answer: "A node that is no longer selected loses it.", At: at("controllers/ready_test.go", "is Unknown while nodeSelector leaves out nodes, which have no condition then")},
		{ID: "cond-04", Source: "kubernetes/kubernetes#58002, kubernetes/kubernetes#60827", Happened: "Writers of the status overwrote each other.",
			Answer: "The patch holds our condition and the UID, nothing else.", At: at("internal/record/record_test.go", "TestPatchHoldsTheUIDAndOurConditionAlone")},
		{ID: "cond-05", Source: "kubernetes/node-problem-detector#211", Happened: "Heartbeats of every probe loaded the API server.",
			Answer: "No write without a change, and a heartbeat about once an hour.", At: at("controllers/node_test.go", "is not written while nothing changes")},
		{ID: "event-01", Source: "kubernetes/client-go#908, kubernetes/kubernetes#47367", Happened: "Events were dropped after the first 25.",
			Answer: "One Event per transition.", At: at("controllers/node_test.go", "flips within one interval of a new certificate, with one Event and one line in the log")},
		{ID: "metric-01", Source: "kubernetes-sigs/metrics-server#1876, kubernetes-sigs/karpenter#968", Happened: "Series outlived their nodes.",
			Answer: "They do not.", At: at("controllers/node_test.go", "leaves no series when it is deleted, and its successor gets none of its verdict")},
		{ID: "metric-02", Source: "KEP-4872", Happened: "Histograms per node multiplied.",
			Answer: "Only failing nodes have a series, bounded in number.", At: at("internal/metrics/metrics_test.go", "TestFailingNodeInfoIsBounded")},
	}
}

func rolloutCases() []Case {
	return []Case{
		{ID: "roll-01", Source: "kubermatic/kubermatic#8014, gardener/gardener#6784", Happened: "Two of 50 nodes still had self-signed certificates.",
			Answer: "Not ready, and the two are named first."},
		{ID: "roll-05", Source: "kubernetes/kubernetes#100098", Happened: "The file was new, the kubelet served the old one.",
			Answer: "What is served is judged: False until the kubelet loads it, with a hint to the certificate that was issued."},
		{ID: "roll-06", Source: "kubernetes/enhancements#4911", Happened: "The check has slipped, and its switch changed.",
			Answer: "No report names the switch, in any format; `--what` chooses what decides the exit code.", Also: at("internal/cli/audit_test.go", "TestExitCodeOfAnAudit")},
	}
}
