// Package crds pins the modules whose CRDs the chart's tests install: those of
// the Prometheus Operator and of cert-manager.
package crds

import (
	_ "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	_ "github.com/prometheus-operator/prometheus-operator/pkg/versionutil"
)
