package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/certs"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/fleet"
)

// Served is what the process of the kubelets says once they serve.
type Served struct {
	Port    int32  `json:"port"`
	Control string `json:"control"`
}

// serve is the process of the simulated kubelets. It ends with its standard
// input. Its control address answers /counts, and sets the last nodes of the
// fleet to a defect, or to a good one, at /set?defect=NAME&nodes=N.
func serve(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	nodes := flags.Int("nodes", 0, "")
	ca := flags.String("ca", "", "")
	file := flags.String("f", "", "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	world := certs.NewWorld(time.Now())
	f, err := fleet.Start()
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	s := &kubelets{fleet: f, world: world, nodes: *nodes}
	for i := range *nodes {
		s.set(i, "good")
	}
	if err := os.WriteFile(*ca, world.CA.PEM(), 0o600); err != nil {
		return err
	}
	if *file != "" {
		if err := writeNodes(*file, *nodes, f.Port()); err != nil {
			return err
		}
	}
	control, err := s.control(ctx)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(Served{Port: f.Port(), Control: control}); err != nil {
		return err
	}
	_, _ = bufio.NewReader(os.Stdin).ReadByte() // until the orchestrator ends
	return nil
}

type kubelets struct {
	fleet *fleet.Fleet
	world *certs.World
	nodes int
}

func (k *kubelets) set(i int, defect string) {
	for _, d := range certs.Defects() {
		if d.Name == defect {
			k.fleet.Set(fleet.Address(i), fleet.BehaviourOf(k.world, d, certs.Identity{NodeName: nodeName(i), IP: fleet.Address(i)}))
		}
	}
}

func (k *kubelets) control(ctx context.Context) (string, error) {
	mux := http.NewServeMux()
	mux.HandleFunc("/counts", func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(k.fleet.Total()) })
	mux.HandleFunc("/set", func(w http.ResponseWriter, r *http.Request) {
		n, err := strconv.Atoi(r.FormValue("nodes"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		for i := k.nodes - n; i < k.nodes; i++ {
			k.set(i, r.FormValue("defect"))
		}
	})
	listener, err := listenLocal(ctx)
	if err != nil {
		return "", err
	}
	go func() { _ = (&http.Server{Handler: mux, ReadHeaderTimeout: time.Second}).Serve(listener) }()
	return "http://" + listener.Addr().String(), nil
}

func nodeName(i int) string { return fmt.Sprintf("node-%06d", i) }

// writeNodes writes a list as kubectl does, of realistic Nodes.
func writeNodes(path string, n int, port int32) error {
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(out)
	_, _ = w.WriteString(`{"apiVersion":"v1","kind":"List","items":[`)
	for i := range n {
		text, err := json.Marshal(realisticNode(i, port))
		if err != nil {
			return err
		}
		if i > 0 {
			_ = w.WriteByte(',')
		}
		_, _ = w.Write(text)
	}
	_, _ = w.WriteString("]}\n")
	if err := w.Flush(); err != nil {
		return err
	}
	return out.Close()
}

// realisticNode is about 13 KiB of JSON, most of which nobody here reads: 50
// images, labels, annotations and managed fields.
func realisticNode(i int, port int32) *corev1.Node {
	node := fleet.Node(nodeName(i), fleet.Address(i), port)
	node.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}
	node.UID = ""
	for l := range 20 {
		node.Labels[fmt.Sprintf("topology.example.com/label-%d", l)] = fmt.Sprintf("value-%d-of-a-label", l)
	}
	node.Annotations = map[string]string{}
	for a := range 10 {
		node.Annotations[fmt.Sprintf("annotation.example.com/number-%d", a)] = fmt.Sprintf("%0100d", a)
	}
	for image := range 50 {
		node.Status.Images = append(node.Status.Images, corev1.ContainerImage{SizeBytes: 123456789, Names: []string{
			fmt.Sprintf("registry.example.com/project-%d/image@sha256:%064x", image, image), fmt.Sprintf("registry.example.com/project-%d/image:v1.2.%d", image, image),
		}})
	}
	fields := metav1.FieldsV1{}
	fields.SetRawString(fmt.Sprintf(`{"f:status":{"f:padding":{"f:%02000d":{}}}}`, 0))
	node.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1",
		FieldsType: "FieldsV1", FieldsV1: &fields}}
	return node
}
