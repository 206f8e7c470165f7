package admission

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/kubelet"
)

// mostRead is how many Nodes are read at a time to see whether a finding holds.
const mostRead = 8

// Reviewer reviews requests by the Nodes that the API server has.
type Reviewer struct {
	// Index of the cached Nodes, which is complete once Synced says so.
	Index  *Index
	Synced func() bool
	// Cached reads those Nodes, and Live past the cache.
	Cached, Live client.Reader
	// Reserved hosts at this moment.
	Reserved func(context.Context) Reserved
}

// Wait until all Nodes are known, or ctx ends, which is an error.
func (r *Reviewer) Wait(ctx context.Context) error {
	return wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(context.Context) (bool, error) { return r.Synced(), nil })
}

// Review gives what is wrong with a request. What the cached Nodes are held
// against it, those Nodes say themselves: they are read anew, since a cache may
// be behind a kubelet that has just reported its address. A Node that was
// created after the request had been made, where that is not zero, holds nothing
// against it.
//
// It errs where a Node cannot be read; the findings are then the cache's.
func (r *Reviewer) Review(ctx context.Context, request Request, made time.Time) ([]Finding, error) {
	view := &view{cached: r.Index, made: made, read: map[string]time.Time{}}
	reserved := r.Reserved(ctx)
	for {
		findings := Review(request, view, reserved)
		unread := view.unread(request, findings)
		if len(unread) == 0 {
			return findings, nil
		}
		for _, name := range unread[:min(len(unread), mostRead)] {
			if err := r.read(ctx, view, name); err != nil {
				return findings, fmt.Errorf("read node %s: %w", name, err)
			}
		}
	}
}

func (r *Reviewer) read(ctx context.Context, view *view, name string) error {
	node := &corev1.Node{}
	switch err := r.Live.Get(ctx, types.NamespacedName{Name: name}, node); {
	case err == nil:
		view.live.Set(kubelet.Stripped(node))
	case !apierrors.IsNotFound(err):
		return err
	}
	view.read[name] = node.CreationTimestamp.Time
	return nil
}

// view is the cached Nodes with some read live.
type view struct {
	cached *Index
	live   Index
	read   map[string]time.Time // when they were created
	made   time.Time
}

func (v *view) isRead(node string) bool {
	_, ok := v.read[node]
	return ok
}

func (v *view) of(node string) *Index {
	if v.isRead(node) {
		return &v.live
	}
	return v.cached
}

// Owners implements Nodes.
func (v *view) Owners(key string) []string {
	owners := slices.DeleteFunc(v.cached.Owners(key), v.isRead)
	owners = append(owners, slices.DeleteFunc(v.live.Owners(key), v.later)...)
	slices.Sort(owners)
	return owners
}

// later says that a Node was created after the request.
func (v *view) later(node string) bool {
	return !v.made.IsZero() && v.read[node].After(v.made)
}

// Reports implements Nodes.
func (v *view) Reports(node string) (addresses, controlPlane bool) { return v.of(node).Reports(node) }

// unread are the Nodes that findings rest on and that were not read: the
// requester's, and those whose address it asks for, unless one of these was
// found to report it indeed.
func (v *view) unread(request Request, findings []Finding) []string {
	var names []string
	for _, f := range findings {
		if !ofNodes(f.Reason) {
			continue
		}
		if node := request.Node(); node != "" && !v.isRead(node) && !slices.Contains(names, node) {
			names = append(names, node)
		}
		if !slices.ContainsFunc(f.Nodes, v.isRead) {
			names = append(names, f.Nodes...)
		}
	}
	return names
}

// ofNodes says that a finding of this reason rests on what Nodes report.
func ofNodes(reason v1alpha1.ReviewReason) bool {
	//exhaustive:ignore
	switch reason {
	case v1alpha1.ReviewReservedAddress, v1alpha1.ReviewForeignAddress, v1alpha1.ReviewAddressNotReported, v1alpha1.ReviewAddressesUnknown:
		return true
	}
	return false
}
