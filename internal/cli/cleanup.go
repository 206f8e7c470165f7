package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/controllers"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/record"
)

func newCleanupCommand(streams Streams) *cobra.Command {
	connection := clusterFlags()
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove our condition from every Node, and then the audit's finalizer",
		Long: `Remove the condition KubeletServingCertificateValid from every Node, and then the
finalizer of the KubeletCertAudit, so that it can be deleted. It works with the
manager gone, and may be run again.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cleanUp(cmd.Context(), connection, streams) },
	}
	addConnectionFlags(cmd.Flags(), connection)
	return cmd
}

func cleanUp(ctx context.Context, connection *genericclioptions.ConfigFlags, streams Streams) error {
	config, err := connect(connection)
	if err != nil {
		return err
	}
	c, err := newClient(config)
	if err != nil {
		return err
	}
	cleared := 0
	recorder := &record.Recorder{Client: c, Clock: clock.RealClock{}}
	if err := controllers.ClearNodes(ctx, c, recorder, func(string) { cleared++ }); err != nil {
		return fmt.Errorf("clear the nodes: %w", err)
	}
	_, _ = fmt.Fprintf(streams.Out, "removed the condition from %d nodes\n", cleared)
	return releaseAudit(ctx, c, streams)
}

func releaseAudit(ctx context.Context, c client.Client, streams Streams) error {
	audit := &v1alpha1.KubeletCertAudit{}
	released := false
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if err := c.Get(ctx, client.ObjectKey{Name: v1alpha1.AuditName}, audit); err != nil {
			return err
		}
		if released = controllerutil.RemoveFinalizer(audit, v1alpha1.AuditFinalizer); !released {
			return nil
		}
		return c.Update(ctx, audit)
	})
	switch {
	case apierrors.IsNotFound(err): // or the kind is not installed
		_, _ = fmt.Fprintln(streams.Out, "there is no KubeletCertAudit")
		return nil
	case err != nil:
		return fmt.Errorf("remove the finalizer of the KubeletCertAudit: %w", err)
	case released:
		_, _ = fmt.Fprintln(streams.Out, "removed the finalizer of the KubeletCertAudit")
	}
	if audit.DeletionTimestamp.IsZero() {
		_, _ = fmt.Fprintln(streams.Out, "the KubeletCertAudit itself is still there: a running manager would write the conditions again")
	}
	return nil
}
