// Command preview prints the table of "kubelet-cert-auditor audit -f" about a
// file of simulated Nodes. It is the demo's first minute on a fresh machine: it
// builds from the rooms that judge and report alone, without the packages of
// Kubernetes clients, whose build takes longer.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/audit"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/kubelet"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/probe"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/report"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/certs"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/fleet"
)

const size = 60

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "preview failed:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	f, err := fleet.Start()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	world := certs.NewWorld(time.Now())
	nodes, err := throughFile(fleet.Populate(f, world, certs.Defects(), size))
	if err != nil {
		return err
	}
	fmt.Printf("=== kubelet-cert-auditor audit -f nodes.json: %d simulated Nodes, no API server needed\n", len(nodes))
	result := audit.Run(ctx, nodes, audit.Options{
		Prober:    &probe.Prober{AllowLocalAddresses: true},
		Endpoints: kubelet.Options{PreferredAddressTypes: []corev1.NodeAddressType{corev1.NodeInternalIP}},
		Policy:    verdict.Policy{Bundle: bundle(world.CA)},
		Timeout:   3 * time.Second, Concurrency: size, What: verdict.WhatBoth, Clock: clock.RealClock{},
	})
	return errors.Join(report.Render(os.Stdout, result, report.Table), ctx.Err())
}

// throughFile writes the Nodes as "kubectl get nodes -o json" does and reads
// them as the CLI does.
func throughFile(members []fleet.Member) ([]*corev1.Node, error) {
	list := corev1.NodeList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}}
	for _, m := range members {
		list.Items = append(list.Items, *m.Node)
	}
	text, err := json.Marshal(list)
	if err != nil {
		return nil, err
	}
	var nodes []*corev1.Node
	err = kubelet.Decode(bytes.NewReader(text), func(n *corev1.Node) error {
		nodes = append(nodes, n)
		return nil
	})
	return nodes, err
}

func bundle(ca *certs.CA) verdict.Bundle {
	b := verdict.Bundle{
		Source: "the simulated cluster's CA", Roots: x509.NewCertPool(),
		Certificates: []*x509.Certificate{ca.Certificate},
		SHA256:       fmt.Sprintf("%x", sha256.Sum256(ca.Certificate.Raw)),
	}
	b.Roots.AddCert(ca.Certificate)
	return b
}
