// Package oracle asks the real kube-apiserver and the product the same question
// about generated Nodes, certificates, chains, bundles and TLS servers, and
// wants the same answer every time.
//
// The question is a Pod's log: for it kube-apiserver dials the Pod's node and
// verifies the certificate there. From its error comes what it refused; the
// product's answer comes from its own probe of the same endpoint. The CN check
// is in no released kube-apiserver, so that rule is held to its sentence in
// KEP-4872.
//
//	go test ./test/oracle                                      a fixed 500
//	go test ./test/oracle -args -combinations 3000 -seed 7     as many, and others
//	go test ./test/oracle -args -seed 7 -only 42               one of them, in detail
//
// It runs in mount and network namespaces of its own, where the resolver, port
// 10250 and addresses are the test's, and the machine's are not touched.
package oracle

import (
	"flag"
	"fmt"
	"os"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var (
	combinations = flag.Int("combinations", 500, "the number of combinations")
	seed         = flag.Uint64("seed", 4872, "the seed that the combinations follow from")
	only         = flag.Int("only", -1, "the one combination to look at")
)

// inside is set in the environment of the process within the namespaces.
const inside = "ORACLE_INSIDE"

func TestMain(m *testing.M) {
	flag.Parse()
	if os.Getenv(inside) == "" {
		os.Exit(runInside())
	}
	if err := setUpNetwork(); err != nil {
		fmt.Fprintln(os.Stderr, "oracle: set up the private network:", err)
		os.Exit(1)
	}
	m.Run()
}

func TestOracle(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Oracle")
}
