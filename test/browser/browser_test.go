// Package browser looks at the HTML report in a headless Chromium.
package browser

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/cli"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/certs"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/fleet"
)

const markup = `<script>document.title='owned'</script><img src=x onerror="document.title='owned'"><style>*{display:none}</style>`

// audited writes the report of an audit of every defect, and of a kubelet whose
// certificate's common name is markup.
func audited(t *testing.T) string {
	t.Helper()
	f, err := fleet.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	world := certs.NewWorld(time.Now())
	list := corev1.NodeList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}}
	defects := certs.Defects()
	for _, m := range fleet.Populate(f, world, defects, 60) {
		list.Items = append(list.Items, *m.Node)
	}
	ip := fleet.Address(len(list.Items))
	template := certs.Template(certs.Identity{NodeName: "markup", IP: ip})
	template.Subject.CommonName, template.Subject.Organization = markup, []string{markup}
	f.Set(ip, fleet.Behaviour{Served: world.CA.Issue(template)})
	list.Items = append(list.Items, *fleet.Node("markup", ip, f.PortOf(ip)))

	dir := t.TempDir()
	text, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	nodes, ca := filepath.Join(dir, "nodes.json"), filepath.Join(dir, "ca.crt")
	for path, text := range map[string][]byte{nodes: text, ca: world.CA.PEM()} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out, stderr bytes.Buffer
	code, err := cli.Run(t.Context(), []string{
		"audit", "-o", "html", "-f", nodes, "--kubelet-certificate-authority", ca, "--allow-local-addresses",
		"--kubelet-preferred-address-types", "InternalIP", "--timeout", "3s",
	}, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &stderr})
	if code != cli.ExitNotReady || err != nil {
		t.Fatalf("exit code %d, %v, %s", code, err, &stderr)
	}
	path := filepath.Join(dir, "report.html")
	if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// browse starts a Chromium without network.
func browse(t *testing.T) context.Context {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.NoSandbox, chromedp.DisableGPU, chromedp.UserDataDir(t.TempDir()), chromedp.WindowSize(1300, 900),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	return ctx
}

func do(ctx context.Context, t *testing.T, actions ...chromedp.Action) {
	t.Helper()
	if err := chromedp.Run(ctx, actions...); err != nil {
		t.Fatal(err)
	}
}

func fileURL(path string) string { return (&url.URL{Scheme: "file", Path: path}).String() }

const visibleRows = `[...document.querySelectorAll("#nodes tbody tr")].filter((r) => r.offsetParent !== null).length`

// shown counts the rows of nodes that are to be seen.
func shown(ctx context.Context, t *testing.T) int {
	t.Helper()
	var n int
	do(ctx, t, chromedp.Evaluate(visibleRows, &n))
	return n
}

func TestReport(t *testing.T) {
	path := audited(t)
	ctx := browse(t)
	var title, text string
	var scripts, images int
	do(ctx, t, chromedp.Navigate(fileURL(path)), chromedp.Title(&title), chromedp.Text("body", &text),
		chromedp.Evaluate(`document.querySelectorAll("script").length`, &scripts), chromedp.Evaluate(`document.images.length`, &images))
	if title != "NOT READY: kubelet serving certificates" || scripts != 1 || images != 0 {
		t.Errorf("title %q, %d scripts, %d images", title, scripts, images)
	}
	if !strings.Contains(text, `<script>document.title='owned'</script>`) {
		t.Error("the markup is not shown as text")
	}

	// Were something of a peer to become an element after all, it could do nothing.
	do(ctx, t, chromedp.Evaluate(`document.querySelector("main").insertAdjacentHTML("beforeend",
		'<img src="x" onerror="document.title=1"><a id="link" href="javascript:document.title=2">x</a><p id="styled" style="display:none">x</p>')`, nil),
		chromedp.Evaluate(`document.getElementById("link").click()`, nil), chromedp.Title(&title))
	var visible bool
	do(ctx, t, chromedp.Evaluate(`getComputedStyle(document.getElementById("styled")).display !== "none"`, &visible))
	if title != "NOT READY: kubelet serving certificates" || !visible {
		t.Errorf("the policy lets things happen: title %q, inline style ignored: %v", title, visible)
	}

	all := shown(ctx, t)
	if all != 61 {
		t.Errorf("%d rows of 61 nodes", all)
	}
	do(ctx, t, chromedp.Click(`label[for="only-breaksWhenEnabled"]`))
	breaks := shown(ctx, t)
	if breaks == 0 || breaks >= all {
		t.Errorf("%d rows of nodes that would break", breaks)
	}
	do(ctx, t, chromedp.Evaluate(`{ const f = document.getElementById("filter"); f.value = "MARKUP owned"; f.dispatchEvent(new Event("input")) }`, nil))
	if n := shown(ctx, t); n != 1 {
		t.Errorf("%d rows of the one node with these words", n)
	}
	do(ctx, t, chromedp.Click(`label[for="only-verified"]`))
	if n := shown(ctx, t); n != 0 {
		t.Errorf("%d verified rows with these words", n)
	}
	do(ctx, t, chromedp.Navigate(fileURL(path)))
	screenshots(ctx, t)
}

// Scripts may be turned off where it is opened.
func TestReportWithoutScripts(t *testing.T) {
	path := audited(t)
	ctx := browse(t)
	do(ctx, t, emulation.SetScriptExecutionDisabled(true), chromedp.Navigate(fileURL(path)))
	var hidden bool
	do(ctx, t, chromedp.Evaluate(`document.getElementById("filter").hidden`, &hidden))
	if n := shown(ctx, t); n != 61 || !hidden {
		t.Errorf("%d rows; a search field that does nothing is hidden: %v", n, hidden)
	}
	do(ctx, t, chromedp.Click(`label[for="only-unknown"]`))
	if n := shown(ctx, t); n == 0 || n == 61 {
		t.Errorf("%d rows of nodes without evidence", n)
	}
}

// screenshots are written where SCREENSHOTS says, for people.
func screenshots(ctx context.Context, t *testing.T) {
	t.Helper()
	dir := os.Getenv("SCREENSHOTS")
	if dir == "" {
		dir = t.TempDir()
	}
	for _, scheme := range []string{"light", "dark"} {
		var picture []byte
		do(ctx, t, emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}),
			chromedp.CaptureScreenshot(&picture))
		write(t, filepath.Join(dir, scheme+".png"), picture)
	}
	var pdf []byte
	do(ctx, t, chromedp.ActionFunc(func(ctx context.Context) (err error) {
		pdf, _, err = cdppage.PrintToPDF().Do(ctx)
		return err
	}))
	write(t, filepath.Join(dir, "report.pdf"), pdf)
	var picture []byte
	do(ctx, t, emulation.SetDeviceMetricsOverride(420, 900, 1, true), chromedp.CaptureScreenshot(&picture))
	write(t, filepath.Join(dir, "narrow.png"), picture)
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if len(data) < 10_000 {
		t.Errorf("%s has %d bytes", filepath.Base(path), len(data))
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(fmt.Errorf("%s: %w", path, err))
	}
}
