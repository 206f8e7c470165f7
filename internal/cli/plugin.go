package cli

import (
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

const (
	product = "kubelet-cert-auditor"
	// pluginName is how kubectl finds "kubectl kubelet-certs": an underscore
	// stands for a dash (kubernetes.io/docs/tasks/extend-kubectl/kubectl-plugins).
	pluginName = "kubectl-kubelet_certs"
	// pluginCompleter is what kubectl asks for the completion of a plugin's words.
	pluginCompleter = "kubectl_complete-kubelet_certs"
	pluginSpoken    = "kubectl kubelet-certs"
)

// programName is the name of an executable without what Windows adds.
func programName(path string) string {
	return strings.TrimSuffix(filepath.Base(filepath.ToSlash(path)), ".exe")
}

// speakAsPlugin makes help and usage say what a user of kubectl types. The
// manager is no command of theirs, and kubectl asks for completions itself.
func speakAsPlugin(root *cobra.Command) {
	root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: pluginSpoken}
	root.CompletionOptions.DisableDefaultCmd = true
	for _, c := range root.Commands() {
		c.Example = strings.ReplaceAll(c.Example, product+" ", pluginSpoken+" ")
		c.Hidden = c.Hidden || c.Name() == "manager"
	}
}
