package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/kubelet"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/report"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/trust"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
)

// endpointFlags are kube-apiserver's flags that choose what is dialled.
type endpointFlags struct {
	preferred []string
	port      int32
	types     []corev1.NodeAddressType
}

func (f *endpointFlags) addFlags(flags *pflag.FlagSet) {
	defaults := make([]string, 0, 5)
	for _, t := range kubelet.DefaultPreferredAddressTypes() {
		defaults = append(defaults, string(t))
	}
	flags.StringSliceVar(&f.preferred, "kubelet-preferred-address-types", defaults, "as on kube-apiserver: the types of addresses to dial, in order of preference")
	flags.Int32Var(&f.port, "kubelet-port", kubelet.DefaultPort, "the port to dial where a Node reports none")
}

func (f *endpointFlags) validate() []error {
	var problems []error
	types, err := kubelet.ParseAddressTypes(f.preferred)
	if err != nil {
		problems = append(problems, fmt.Errorf("--kubelet-preferred-address-types=%q: %w", strings.Join(f.preferred, ","), err))
	}
	f.types = types
	return append(problems, validatePort("--kubelet-port", f.port)...)
}

func (f *endpointFlags) options() kubelet.Options {
	return kubelet.Options{PreferredAddressTypes: f.types, Port: f.port}
}

// withoutPath is what is wrong with a file, for an error that names the file
// itself, quoted.
func withoutPath(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

func validateRequired(flag, value string) []error {
	if value == "" {
		return []error{fmt.Errorf("%s=%q: must not be empty", flag, value)}
	}
	return nil
}

func validatePort(flag string, port int32) []error {
	if port < 1 || port > 65535 {
		return []error{fmt.Errorf("%s=%d: must be 1 to 65535", flag, port)}
	}
	return nil
}

func validatePositive(flag string, d time.Duration) []error {
	if d <= 0 {
		return []error{fmt.Errorf("%s=%s: must be above zero", flag, d)}
	}
	return nil
}

func validateAtLeastOne(flag string, n int) []error {
	if n < 1 {
		return []error{fmt.Errorf("%s=%d: must be at least 1", flag, n)}
	}
	return nil
}

// validateBindAddress takes a host, which may be empty, with a port, and 0 for
// none.
func validateBindAddress(flag, address string) []error {
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil && address != "0" {
		return []error{fmt.Errorf("%s=%q: must be host:port or :port, or 0 for none", flag, address)}
	}
	return nil
}

// outputFlag is -o.
type outputFlag string

func (o *outputFlag) addFlags(flags *pflag.FlagSet) {
	flags.StringVarP((*string)(o), "output", "o", string(report.Table), "output format: "+strings.Join(report.Formats(), ", "))
}

func (o outputFlag) validate() []error {
	if !slices.Contains(report.Formats(), string(o)) {
		return []error{fmt.Errorf("--output=%q: must be one of %s", string(o), strings.Join(report.Formats(), ", "))}
	}
	return nil
}

// whatFlag is --what.
type whatFlag string

func (w *whatFlag) addFlags(flags *pflag.FlagSet) {
	flags.StringVar((*string)(w), "what", string(verdict.WhatBoth),
		"the checks that decide the exit code: both; tls (all but the common name: passes today); cn (the common name alone)")
}

func (w whatFlag) validate() []error {
	switch verdict.What(w) {
	case verdict.WhatBoth, verdict.WhatTLS, verdict.WhatCN:
		return nil
	}
	return []error{fmt.Errorf("--what=%q: must be both, tls or cn", string(w))}
}

// completeValues offers a shell the values of flags that have a closed list.
func completeValues(cmd *cobra.Command) {
	types := make([]string, 0, 5)
	for _, t := range kubelet.DefaultPreferredAddressTypes() {
		types = append(types, string(t))
	}
	for flag, values := range map[string][]string{
		"output":                          report.Formats(),
		"what":                            {string(verdict.WhatBoth), string(verdict.WhatTLS), string(verdict.WhatCN)},
		"kubelet-preferred-address-types": types,
	} {
		if cmd.Flags().Lookup(flag) != nil {
			_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
		}
	}
}

const caFlag = "kubelet-certificate-authority"

func addCAFlag(flags *pflag.FlagSet, path *string) {
	flags.StringVar(path, caFlag, "", "as on kube-apiserver: a PEM file of the CAs that kubelets' certificates must chain to")
}

// loadCA reads the flag's file; without the flag, the CA of the cluster, and
// says whether it was that one.
func loadCA(ctx context.Context, path string, given bool, cluster *rest.Config) (verdict.Bundle, bool, error) {
	if given {
		bundle, err := trust.Load(ctx, trust.File(path))
		if err != nil {
			return bundle, false, fmt.Errorf("--%s=%q: %w", caFlag, path, withoutPath(errors.Unwrap(err)))
		}
		return bundle, false, nil
	}
	if cluster == nil {
		return verdict.Bundle{}, false, nil
	}
	var source trust.Source
	switch {
	case len(cluster.CAData) > 0:
		source = trust.Text{Label: "the cluster CA of the kubeconfig", PEM: cluster.CAData}
	case cluster.CAFile != "":
		source = trust.File(cluster.CAFile)
	default:
		return verdict.Bundle{}, false, nil
	}
	bundle, err := trust.Load(ctx, source)
	return bundle, err == nil, err
}
