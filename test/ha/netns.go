package ha

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// netns is a network of its own for one replica, with a cable to the API server
// and one to the kubelets. They all listen on loopback addresses outside, which
// Linux routes to where it is told to (route_localnet, ip-sysctl.rst). Linux and
// root are needed.
type netns struct {
	name    string
	api     string // what lies outside of the cable to the API server
	address string // the replica's own
}

const apiServer = "127.0.0.1"

// newNetns is gone when the test ends. Its addresses are of the range for tests
// of networks, 198.18.0.0/15 (RFC 2544).
func newNetns(ctx context.Context, t *testing.T, number int) *netns {
	t.Helper()
	n := &netns{name: fmt.Sprintf("kubelet-cert-auditor-ha-%d", number)}
	must(t, n.ip(ctx, "netns", "add", n.name))
	t.Cleanup(func() { must(t, n.ip(context.WithoutCancel(ctx), "netns", "del", n.name)) }) // and its cables
	n.api, _ = n.cable(ctx, t, "api", number, apiServer+"/32")
	_, n.address = n.cable(ctx, t, "kub", number+1, "127.0.0.0/8")
	return n
}

// cable leads to what is there outside at some loopback addresses. Its two ends
// are in the network 198.18.NUMBER.0/30.
func (n *netns) cable(ctx context.Context, t *testing.T, to string, number int, there string) (outside, address string) {
	t.Helper()
	outside = fmt.Sprintf("kca-%s%d", to, number)
	far, near := fmt.Sprintf("198.18.%d.1", number), fmt.Sprintf("198.18.%d.2", number)
	must(t, n.ip(ctx, "link", "add", outside, "type", "veth", "peer", "name", to, "netns", n.name))
	must(t, n.ip(ctx, "addr", "add", far+"/30", "dev", outside))
	must(t, n.ip(ctx, "link", "set", outside, "up"))
	must(t, n.ip(ctx, "-n", n.name, "addr", "add", near+"/30", "dev", to))
	must(t, n.ip(ctx, "-n", n.name, "link", "set", to, "up"))
	must(t, run(ctx, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/conf/"+outside+"/route_localnet"))
	must(t, n.inside(ctx, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/conf/"+to+"/route_localnet"))
	must(t, n.ip(ctx, "-n", n.name, "route", "add", there, "via", far, "dev", to, "src", near))
	return outside, near
}

// cut pulls the cable to the API server.
func (n *netns) cut(ctx context.Context) error { return n.ip(ctx, "link", "set", n.api, "down") }

func (n *netns) mend(ctx context.Context) error { return n.ip(ctx, "link", "set", n.api, "up") }

// reaches asks for a connection, for three seconds at most.
func (n *netns) reaches(ctx context.Context, host string, port any) bool {
	return n.inside(ctx, "timeout", "3", "bash", "-c", fmt.Sprintf("exec 3<>/dev/tcp/%s/%v", host, port)) == nil
}

func (n *netns) inside(ctx context.Context, command ...string) error {
	return n.ip(ctx, append([]string{"netns", "exec", n.name}, command...)...)
}

func (*netns) ip(ctx context.Context, args ...string) error { return run(ctx, "ip", args...) }

func run(ctx context.Context, name string, args ...string) error {
	if out, err := exec.CommandContext(ctx, name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return nil
}
