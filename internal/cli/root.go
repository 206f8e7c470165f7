// Package cli holds the commands: their flags, validation, wiring and exit
// codes. It is the one place that knows every room.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
)

// Exit codes.
const (
	ExitReady     = 0 // every node passes, or the command did what it was asked
	ExitNotReady  = 1 // at least one node would be refused
	ExitUnknown   = 2 // none would be refused, but there is a node without evidence, or no node
	ExitCannotRun = 3 // usage, kubeconfig, CA or input that cannot be used
)

// Streams are the standard streams of a command, and the name that it was called
// by, which may be empty.
type Streams struct {
	In      io.Reader
	Out     io.Writer
	Err     io.Writer
	Program string
}

// answered is the way an answer becomes an exit code: it is not an error.
type answered int

// Error implements error.
func (a answered) Error() string { return fmt.Sprintf("exit code %d", int(a)) }

// answerOf turns a readiness into an exit code.
func answerOf(r verdict.Readiness) error {
	switch r {
	case verdict.Ready:
		return nil
	case verdict.NotReady:
		return answered(ExitNotReady)
	case verdict.ReadinessUnknown:
	}
	return answered(ExitUnknown)
}

// Run executes the command line and returns the exit code, with the error if
// the command could not do its work.
func Run(ctx context.Context, args []string, streams Streams) (int, error) {
	root := newRootCommand(streams)
	switch programName(streams.Program) {
	case pluginName:
		speakAsPlugin(root)
	case pluginCompleter:
		speakAsPlugin(root)
		args = append([]string{cobra.ShellCompRequestCmd}, args...)
	}
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	var answer answered
	switch {
	case err == nil:
		return ExitReady, nil
	case errors.As(err, &answer):
		return int(answer), nil
	}
	return ExitCannotRun, err
}

func newRootCommand(streams Streams) *cobra.Command {
	root := &cobra.Command{
		Use:   "kubelet-cert-auditor",
		Short: "Find the kubelets that kube-apiserver's certificate CN check (KEP-4872) would refuse",
		Long: `kubelet-cert-auditor answers, before kube-apiserver's kubelet certificate CN
check (KEP-4872) is turned on: which nodes would break, why, and what to do.

Exit codes: 0 every node passes; 1 at least one would be refused; 2 none would
be refused, but there is no evidence for every node; 3 it could not run.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		// They would make several lines of an error.
		DisableSuggestions: true,
	}
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.Err)
	root.AddCommand(
		newAuditCommand(streams), newVerifyCommand(streams), newCleanupCommand(streams),
		newManagerCommand(streams), newVersionCommand(streams),
	)
	refuseUnknownHelpTopics(root)
	return root
}

// refuseUnknownHelpTopics, which cobra's help prints usage for, and succeeds.
func refuseUnknownHelpTopics(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	for _, command := range root.Commands() {
		if command.Name() == "help" {
			command.Args = func(_ *cobra.Command, topic []string) error {
				_, _, err := root.Find(topic)
				return err
			}
		}
	}
}
