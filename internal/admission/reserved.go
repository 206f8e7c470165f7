package admission

import (
	"context"
	"net/netip"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	// reservedFor is how long the API server's addresses hold before they are
	// read again. They change with the cluster's control plane.
	reservedFor = time.Minute
	// reservedRetry is how long it takes after they could not be read: not each
	// review is to wait, and none is to do without for long.
	reservedRetry = 5 * time.Second
)

// APIServerAddresses knows the addresses of the Service "kubernetes". It reads
// them when they are asked for, at most once a minute.
type APIServerAddresses struct {
	Live  client.Reader
	Clock clock.PassiveClock
	// AllowLocal lifts the ban on loopback addresses.
	AllowLocal bool

	mu    sync.Mutex
	known Reserved
	until time.Time
}

// Reserved are the present addresses; the last known ones where they cannot be
// read.
func (a *APIServerAddresses) Reserved(ctx context.Context) Reserved {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now := a.Clock.Now(); now.After(a.until) {
		a.until = now.Add(reservedFor)
		services, err := a.services(ctx)
		if err == nil {
			a.known.Services = services
		}
		endpoints, endpointsErr := a.endpoints(ctx)
		if endpointsErr == nil {
			a.known.Endpoints = endpoints
		}
		for _, err := range []error{err, endpointsErr} {
			if err != nil {
				a.until = now.Add(reservedRetry)
				log.FromContext(ctx).Error(err, "the API server's own addresses cannot be read")
			}
		}
	}
	reserved := a.known
	reserved.AllowLocal = a.AllowLocal
	return reserved
}

var apiServerService = types.NamespacedName{Namespace: metav1.NamespaceDefault, Name: "kubernetes"}

func (a *APIServerAddresses) services(ctx context.Context) ([]netip.Addr, error) {
	service := &corev1.Service{}
	err := a.Live.Get(ctx, apiServerService, service)
	return parseAddresses(service.Spec.ClusterIPs), client.IgnoreNotFound(err)
}

// endpoints: kube-apiserver keeps one EndpointSlice, of the Service's name.
func (a *APIServerAddresses) endpoints(ctx context.Context) ([]netip.Addr, error) {
	slice := &discoveryv1.EndpointSlice{}
	if err := a.Live.Get(ctx, apiServerService, slice); err != nil {
		if apierrors.IsNotFound(err) { // --endpoint-reconciler-type=none
			return nil, nil
		}
		return nil, err
	}
	var addresses []netip.Addr
	for _, endpoint := range slice.Endpoints {
		addresses = append(addresses, parseAddresses(endpoint.Addresses)...)
	}
	return addresses, nil
}

func parseAddresses(texts []string) []netip.Addr {
	var addresses []netip.Addr
	for _, text := range texts {
		if address, err := netip.ParseAddr(text); err == nil {
			addresses = append(addresses, address.Unmap())
		}
	}
	return addresses
}
