package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
)

// check compares every node's condition with what its behaviour must give, and
// looks for what must never happen.
func (d *demo) check(ctx context.Context) error {
	title("Checking")
	var problems []error
	for _, c := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"every node has the reason of its behaviour", d.checkConditions},
		{"the counts of the KubeletCertAudit are those of the behaviours", d.checkCounts},
		{"the webhook has answered each time, and denied the last one", d.checkRequests},
		{"the API server refused nothing to the ServiceAccount", d.checkPermissions},
		{"no kubelet saw an HTTP request, a token or a certificate", d.checkFleet},
	} {
		if err := c.run(ctx); err != nil {
			problems = append(problems, err)
			continue
		}
		fmt.Println("ok:", c.name)
	}
	return errors.Join(problems...)
}

func (d *demo) checkConditions(ctx context.Context) error {
	c, err := kubernetes.NewForConfig(d.plane.Config())
	if err != nil {
		return err
	}
	nodes, err := c.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	got := map[string]string{}
	for i := range nodes.Items {
		for _, condition := range nodes.Items[i].Status.Conditions {
			if condition.Type == v1alpha1.ConditionServingCertificateValid {
				got[nodes.Items[i].Name] = string(condition.Status) + " " + condition.Reason
			}
		}
	}
	var problems []error
	for _, m := range d.members {
		want := m.Defect.Status + " " + string(m.Defect.Reason)
		if got[m.Node.Name] != want {
			problems = append(problems, fmt.Errorf("node %s: condition %q, want %q", m.Node.Name, got[m.Node.Name], want))
		}
	}
	return errors.Join(problems...)
}

func (d *demo) checkPermissions(context.Context) error {
	events, err := d.plane.AuditEvents()
	if err != nil {
		return err
	}
	user := "system:serviceaccount:" + namespace + ":" + serviceAccount
	var problems []error
	requests := 0
	for _, e := range events {
		if e.User != user {
			continue
		}
		requests++
		if e.Code == 401 || e.Code == 403 {
			problems = append(problems, fmt.Errorf("%d: %s %s: %s", e.Code, e.Verb, e.RequestURI, e.Message))
		}
	}
	if requests == 0 {
		problems = append(problems, fmt.Errorf("the audit log holds no request of %s", user))
	}
	return errors.Join(problems...)
}

func (d *demo) checkFleet(context.Context) error {
	c := d.fleet.Total()
	if c.Requests+c.ApplicationBytes+c.ClientCertificates != 0 || c.Handshakes == 0 {
		return fmt.Errorf("the kubelets saw more than handshakes: %+v", c)
	}
	return nil
}

func (d *demo) checkCounts(ctx context.Context) error {
	var want v1alpha1.NodeCounts
	for _, m := range d.members {
		want.Total++
		switch {
		case m.Defect.Status == "True":
			want.Verified++
		case m.Defect.Status == "Unknown":
			want.Unknown++
		case m.Defect.Reason == v1alpha1.ReasonCommonNameMismatch:
			want.BreaksWhenEnabled++
		default:
			want.RejectedToday++
		}
	}
	// The spec was changed a moment ago, so each node is looked at once more.
	var got v1alpha1.NodeCounts
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		audit, err := d.getAudit(ctx)
		if err == nil {
			got = audit.Status.Nodes
		}
		return got == want, err
	})
	if err != nil {
		return fmt.Errorf("the audit counts %+v, want %+v: %w", got, want, err)
	}
	out, err := d.plane.Kubectl(ctx, nil, "get", "kubeletcertaudit", v1alpha1.AuditName,
		"-o", `jsonpath={.status.conditions[?(@.type=="ReadyToEnforce")].status}`)
	if err == nil && strings.TrimSpace(out) != "False" {
		err = fmt.Errorf("ReadyToEnforce is %q, want False", out)
	}
	return err
}
