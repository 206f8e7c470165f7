package cli_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/cli"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/certs"
)

const (
	nodesPath = "/api/v1/nodes"
	podsPath  = "/api/v1/namespaces/kube-system/pods"
	csrsPath  = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
	auditPath = "/apis/kubeletcert.dev/v1alpha1/kubeletcertaudits/cluster"
)

// server answers "METHOD path" as the table says, anything else with 404, and
// keeps what was asked. It is the address 127.0.0.1 of the world's CA.
type server struct {
	*httptest.Server
	mu    sync.Mutex
	asked []string
}

func serve(t *testing.T, w *certs.World, answers map[string]func(w http.ResponseWriter, r *http.Request)) *server {
	t.Helper()
	s := &server{}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.asked = append(s.asked, r.Method+" "+r.URL.Path)
		s.mu.Unlock()
		if answer := answers[r.Method+" "+r.URL.Path]; answer != nil {
			w.Header().Set("Content-Type", "application/json")
			answer(w, r)
			return
		}
		http.NotFound(w, r)
	}))
	identity := certs.Template(certs.Identity{NodeName: "kube-apiserver", IP: netip.MustParseAddr("127.0.0.1")})
	s.TLS = &tls.Config{Certificates: []tls.Certificate{w.CA.Issue(identity).TLS()}}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// Two pages, as an API server gives a list that exceeds the limit.
func listInPages(pages ...corev1.NodeList) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		page := pages[0]
		if r.URL.Query().Get("continue") == "more" {
			page = pages[1]
		} else if len(pages) > 1 {
			page.Continue = "more"
		}
		_ = json.NewEncoder(w).Encode(page)
	}
}

func pageOf(c *cluster, i int) corev1.NodeList {
	return corev1.NodeList{TypeMeta: c.list.TypeMeta, Items: c.list.Items[i : i+1]}
}

func forbidden(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }

func TestAuditOfACluster(t *testing.T) {
	c := newCluster(t, "good", "bare-node-name")
	s := serve(t, c.world, map[string]func(http.ResponseWriter, *http.Request){
		"GET " + nodesPath: listInPages(pageOf(c, 0), pageOf(c, 1)), "GET " + csrsPath: listRequests("bare-node-name", "csr-1"),
		"GET " + podsPath: forbidden,
	})
	args := []string{"audit", "--kubeconfig", kubeconfig(t, s.URL), "--allow-local-addresses", "--kubelet-preferred-address-types=InternalIP",
		"--certificate-authority", c.ca}

	r := run(t, append(args, "--kubelet-certificate-authority", c.ca)...)
	r.answers(t, cli.ExitNotReady)
	if !strings.Contains(r.out, "of 2 nodes 1 are verified, 1 would break") || strings.Contains(r.out, "cluster CA") ||
		!strings.Contains(r.out, "Hint: its request waits for approval: kubectl certificate approve csr-1.") {
		t.Errorf("%s", r.out)
	}
	run(t, append(args, "-l", "kubernetes.io/hostname=good", "--kubelet-certificate-authority", c.ca)...).answers(t, cli.ExitReady)
	if pages := ",GET " + nodesPath; strings.Join(s.asked, ",") != strings.Repeat(pages+pages+",GET "+csrsPath+",GET "+podsPath, 2)[1:] {
		t.Errorf("asked for %v", s.asked)
	}

	// The CA of the kubeconfig is the default bundle, and the report says so.
	r = run(t, args...)
	r.answers(t, cli.ExitNotReady)
	if !strings.Contains(r.out, "This is the cluster CA: the API server's own --kubelet-certificate-authority was not read.") {
		t.Errorf("%s", r.out)
	}
}

// What kube-apiserver does otherwise is a finding, and Ready no more than that allows.
func TestAuditReadsTheFlagsOfTheAPIServer(t *testing.T) {
	c := newCluster(t, "good")
	for flags, want := range map[string]struct {
		code, today int
		finding     string
	}{
		"--kubelet-certificate-authority=/ca.crt --kubelet-preferred-address-types=InternalIP":                                {cli.ExitReady, cli.ExitReady, ""},
		"--kubelet-preferred-address-types=InternalIP":                                                                        {cli.ExitNotReady, cli.ExitReady, "KubeletsNotVerified"},
		"--kubelet-certificate-authority=/ca.crt":                                                                             {cli.ExitUnknown, cli.ExitUnknown, "AddressTypesDiffer"},
		"--kubelet-certificate-authority=/a --kubelet-preferred-address-types=InternalIP --enable-kubelet-cert-cn-validation": {cli.ExitReady, cli.ExitReady, "CheckIsOn"},
	} {
		s := serve(t, c.world, map[string]func(http.ResponseWriter, *http.Request){
			"GET " + nodesPath: listInPages(pageOf(c, 0)), "GET " + csrsPath: listRequests("other", "csr-1"),
			"GET " + podsPath: func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Query().Get("labelSelector") != "component=kube-apiserver" {
					w.WriteHeader(http.StatusForbidden)
					return
				}
				pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "kube-apiserver-a"}}
				pod.Spec.Containers = []corev1.Container{{Command: append([]string{"kube-apiserver"}, strings.Fields(flags)...)}}
				_ = json.NewEncoder(w).Encode(corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: []corev1.Pod{pod}})
			},
		})
		args := []string{
			"audit", "--kubeconfig", kubeconfig(t, s.URL), "--allow-local-addresses", "--kubelet-preferred-address-types=InternalIP",
			"--certificate-authority", c.ca, "--kubelet-certificate-authority", c.ca,
		}
		r := run(t, args...)
		r.answers(t, want.code)
		run(t, append(args, "--what", "tls")...).answers(t, want.today)
		for code, problem := range map[int]string{cli.ExitReady: "", cli.ExitNotReady: "<failure", cli.ExitUnknown: "<error"} {
			if junit := run(t, append(args, "-o", "junit")...); strings.Contains(junit.out, problem) != (code == want.code) && problem != "" {
				t.Errorf("%s: exit code %d\n%s", flags, want.code, junit.out)
			}
		}
		if strings.Contains(r.out, "What to do, by reason") {
			t.Errorf("%s: a page for nodes, of which none fails\n%s", flags, r.out)
		}
		if _, finding, _ := strings.Cut(r.out, "Finding "); !strings.HasPrefix(finding, want.finding) || want.finding == "" && finding != "" {
			t.Errorf("%s: want finding %q\n%s", flags, want.finding, r.out)
		}
	}
}

// Flags that cannot be read, or not be told, are said to be missing.
func TestAuditSaysWhichFlagsItDoesNotKnow(t *testing.T) {
	c := newCluster(t, "good")
	for want, pods := range map[string]func(w http.ResponseWriter){
		"findings about kube-apiserver's flags are left out": func(w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) },
		"Finding FlagsNotUnderstood": func(w http.ResponseWriter) {
			pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "kube-apiserver-a"}}
			pod.Spec.Containers = []corev1.Container{{Command: []string{"sh", "-c", "exec kube-apiserver"}}}
			_ = json.NewEncoder(w).Encode(corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: []corev1.Pod{pod}})
		},
	} {
		s := serve(t, c.world, map[string]func(http.ResponseWriter, *http.Request){
			"GET " + nodesPath: listInPages(pageOf(c, 0)), "GET " + csrsPath: listRequests("other", "csr-1"),
			"GET " + podsPath: func(w http.ResponseWriter, _ *http.Request) { pods(w) },
		})
		r := run(t, "audit", "--kubeconfig", kubeconfig(t, s.URL), "--allow-local-addresses", "--kubelet-preferred-address-types=InternalIP",
			"--certificate-authority", c.ca, "--kubelet-certificate-authority", c.ca)
		if r.code != cli.ExitReady || !strings.Contains(r.out+r.stderr, want) {
			t.Errorf("exit code %d, want %q in\n%s%s", r.code, want, r.out, r.stderr)
		}
	}
}

// listRequests is the answer to whoever asks for those of the signer.
func listRequests(node, name string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("fieldSelector") != "spec.signerName=kubernetes.io/kubelet-serving" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		list := certificatesv1.CertificateSigningRequestList{Items: []certificatesv1.CertificateSigningRequest{{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: certificatesv1.CertificateSigningRequestSpec{
				SignerName: certificatesv1.KubeletServingSignerName, Username: "system:node:" + node, Groups: []string{"system:nodes"},
			},
		}}}
		list.APIVersion, list.Kind = "certificates.k8s.io/v1", "CertificateSigningRequestList"
		_ = json.NewEncoder(w).Encode(list)
	}
}

// Who may not list requests is told once, and gets the same answer.
func TestAuditWithoutTheRightToListRequests(t *testing.T) {
	c := newCluster(t, "good", "bare-node-name")
	s := serve(t, c.world, map[string]func(http.ResponseWriter, *http.Request){
		"GET " + nodesPath: listInPages(pageOf(c, 0), pageOf(c, 1)),
		"GET " + csrsPath:  forbidden,
		"GET " + podsPath:  forbidden, // of which nobody needs to hear: findings are a gift
	})
	r := run(t, "audit", "--kubeconfig", kubeconfig(t, s.URL), "--allow-local-addresses", "--kubelet-preferred-address-types=InternalIP",
		"--certificate-authority", c.ca, "-o", "json")
	if r.code != cli.ExitNotReady || r.err != nil || strings.Count(r.stderr, "\n") != 1 || !strings.Contains(r.stderr, "certificatesigningrequests") {
		t.Errorf("exit code %d, %v: %q", r.code, r.err, r.stderr)
	}
	if !json.Valid([]byte(r.out)) || !strings.Contains(r.out, "a bare node name is what k3s, RKE2 and kops issue") {
		t.Errorf("%s", r.out)
	}
}

func TestCleanup(t *testing.T) {
	c := newCluster(t, "good", "bare-node-name")
	c.list.Items[0].UID = "u1"
	c.list.Items[0].Status.Conditions = []corev1.NodeCondition{{Type: "KubeletServingCertificateValid"}}
	var patch, update atomic.Value
	keep := func(into *atomic.Value) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			into.Store(string(body))
			_, _ = w.Write(body)
		}
	}
	answers := map[string]func(http.ResponseWriter, *http.Request){
		"GET " + nodesPath:                    listInPages(c.list),
		"PATCH " + nodesPath + "/good/status": keep(&patch),
		"PUT " + auditPath:                    keep(&update),
	}
	args := []string{"cleanup", "--kubeconfig", kubeconfig(t, serve(t, c.world, answers).URL), "--certificate-authority", c.ca}

	r := run(t, args...)
	r.answers(t, 0)
	if r.out != "removed the condition from 1 nodes\nthere is no KubeletCertAudit\n" {
		t.Errorf("%q", r.out)
	}
	if text, _ := patch.Load().(string); !strings.Contains(text, `"$patch":"delete"`) || !strings.Contains(text, `"uid":"u1"`) {
		t.Errorf("the patch is %s", text)
	}

	metadata := `"deletionTimestamp":"2026-01-01T00:00:00Z","finalizers":["` + v1alpha1.AuditFinalizer + `","other"]`
	answers["GET "+auditPath] = func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"apiVersion":"kubeletcert.dev/v1alpha1","kind":"KubeletCertAudit","metadata":{"name":"cluster",` + metadata + `}}`))
	}
	r = run(t, args...)
	r.answers(t, 0)
	if r.out != "removed the condition from 1 nodes\nremoved the finalizer of the KubeletCertAudit\n" {
		t.Errorf("%q", r.out)
	}
	if text, _ := update.Load().(string); !strings.Contains(text, `"finalizers":["other"]`) {
		t.Errorf("the update is %s", text)
	}

	metadata = `"finalizers":[]`
	r = run(t, args...)
	r.answers(t, 0)
	if !strings.Contains(r.out, "the KubeletCertAudit itself is still there") {
		t.Errorf("%q", r.out)
	}
}

// Nobody waits for an API server that accepts connections and says nothing.
func TestInterruptedWhileTheAPIServerIsSilent(t *testing.T) {
	for command, want := range map[string]int{"audit": cli.ExitCannotRun, "cleanup": cli.ExitCannotRun, "manager": 0} {
		t.Run(command, func(t *testing.T) {
			listener := listen(t)
			ctx, cancel := context.WithCancel(t.Context())
			connections := make(chan net.Conn, 100)
			var accepting sync.WaitGroup
			accepting.Go(func() {
				for conn, err := listener.Accept(); err == nil; conn, err = listener.Accept() {
					connections <- conn
					cancel()
				}
			})
			start := time.Now()
			r := runWith(ctx, nil, command, "--kubeconfig", kubeconfig(t, "http://"+listener.Addr().String()))
			if took := time.Since(start); took > quick {
				t.Errorf("it took %s", took)
			}
			if r.code != want || r.out != "" || r.stderr != "" || (r.err == nil) != (want == 0) {
				t.Errorf("exit code %d, error %v, stdout %q, stderr %q", r.code, r.err, r.out, r.stderr)
			}
			if want != 0 && !errors.Is(r.err, context.Canceled) {
				t.Errorf("it does not say that it was interrupted: %v", r.err)
			}
			cancel()
			_ = listener.Close()
			accepting.Wait()
			close(connections)
			for conn := range connections {
				_ = conn.Close()
			}
		})
	}
}

// lines counts the lines of a log and calls each with the count.
type lines struct {
	text strings.Builder
	n    int
	each func(n int)
}

func (l *lines) Write(p []byte) (int, error) {
	l.text.Write(p)
	for range strings.Count(string(p), "\n") {
		l.n++
		l.each(l.n)
	}
	return len(p), nil
}

func TestTheManagerWaitsForTheAPIServerWithALinePerAttempt(t *testing.T) {
	t.Run("nobody listens", func(t *testing.T) {
		address := closedPort(t)
		log := waitAndCancel(t, "http://"+address, 2)
		for i, line := range strings.Split(strings.TrimSpace(log), "\n") {
			for _, want := range []string{"the API server does not answer, trying again", address, "connection refused", `"attempt":` + string(rune('1'+i))} {
				if !strings.Contains(line, want) {
					t.Errorf("no %q in %s", want, line)
				}
			}
		}
	})
	t.Run("the kind is not installed", func(t *testing.T) {
		c := newCluster(t)
		s := serve(t, c.world, nil)
		log := waitAndCancel(t, s.URL, 2, "--certificate-authority", c.ca)
		if len(s.asked) != 2 || strings.Count(log, "the KubeletCertAudit kind is not installed, trying again") != 2 {
			t.Errorf("asked for %v\n%s", s.asked, log)
		}
	})
}

// waitAndCancel runs a manager until it has logged n lines, and returns them.
func waitAndCancel(t *testing.T, server string, n int, more ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), quick)
	defer cancel()
	log := &lines{each: func(seen int) {
		if seen == n {
			cancel()
		}
	}}
	var out strings.Builder
	code, err := cli.Run(ctx, append(more, "manager", "--kubeconfig", kubeconfig(t, server)), cli.Streams{Out: &out, Err: log})
	if code != 0 || err != nil || out.Len() > 0 || log.n != n || !errors.Is(ctx.Err(), context.Canceled) {
		t.Errorf("exit code %d, %v, %d lines (%v), stdout %q\n%s", code, err, log.n, ctx.Err(), out.String(), log.text.String())
	}
	return log.text.String()
}
