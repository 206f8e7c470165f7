package trust_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/trust"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/certs"
)

func write(t *testing.T, path string, text []byte) string {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// assertHolds says that a bundle is that of one CA.
func assertHolds(t *testing.T, b verdict.Bundle, err error, ca *certs.CA) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if len(b.Certificates) != 1 || !b.Certificates[0].Equal(ca.Certificate) {
		t.Fatalf("%d certificates of %s, which are not the CA", len(b.Certificates), b.Source)
	}
}

func TestFileThatCannotBeUsed(t *testing.T) {
	dir := t.TempDir()
	huge := write(t, filepath.Join(dir, "huge"), nil)
	if err := os.Truncate(huge, 9<<20); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ path, says string }{
		"missing":            {filepath.Join(dir, "missing"), "no such file"},
		"empty":              {write(t, filepath.Join(dir, "empty"), nil), "empty"},
		"a directory":        {dir, "is a directory"},
		"not PEM":            {write(t, filepath.Join(dir, "text"), []byte("hello")), "no PEM block"},
		"larger than a CA":   {huge, "more than"},
		"a dangling symlink": {symlink(t, "nowhere", filepath.Join(dir, "link")), "no such file"},
	} {
		b, err := trust.Load(t.Context(), trust.File(c.path))
		if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), c.path) {
			t.Errorf("%s: error %v, want one that names the file and says %q", name, err, c.says)
		}
		if !b.Empty() || b.Source != "file "+c.path {
			t.Errorf("%s: bundle of %q: %v", name, b.Source, b.Certificates)
		}
	}
	if _, err := trust.Load(t.Context(), trust.File(filepath.Join(dir, "missing"))); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the cause is lost: %v", err)
	}
}

func symlink(t *testing.T, target, path string) string {
	t.Helper()
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// The kubelet updates a mounted ConfigMap by renaming one symlink over another,
// so that the path itself never changes.
func TestFileFollowsTheKubeletsSymlinkSwap(t *testing.T) {
	dir := t.TempDir()
	version := func(name string, ca *certs.CA) {
		t.Helper()
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, name, "ca.crt"), ca.PEM())
		swap := symlink(t, name, filepath.Join(dir, "..data_tmp"))
		if err := os.Rename(swap, filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	version("..2024_1", world.CA)
	source := trust.File(symlink(t, "..data/ca.crt", filepath.Join(dir, "ca.crt")))
	var store trust.Store
	b, err := store.Load(t.Context(), source)
	assertHolds(t, b, err, world.CA)

	version("..2024_2", world.UnknownCA)
	if err := os.RemoveAll(filepath.Join(dir, "..2024_1")); err != nil {
		t.Fatal(err)
	}
	b, err = store.Load(t.Context(), source)
	assertHolds(t, b, err, world.UnknownCA)
}

func TestTextIsItsOwnSource(t *testing.T) {
	b, err := trust.Load(t.Context(), trust.Text{Label: "inline", PEM: world.CA.PEM()})
	assertHolds(t, b, err, world.CA)
	if b.Source != "inline" {
		t.Errorf("source %q", b.Source)
	}
}

// scripted gives what it is told to.
type scripted struct {
	name string
	text []byte
	err  error
}

func (s scripted) Name() string                         { return s.name }
func (s scripted) Read(context.Context) ([]byte, error) { return s.text, s.err }

func TestStoreKeepsTheLastGoodBundleOfTheSameSource(t *testing.T) {
	broken := errors.New("the disk is on fire")
	one, two := world.CA.PEM(), world.UnknownCA.PEM()
	type step struct {
		source scripted
		want   *certs.CA // nil: the bundle is empty
		fails  bool
	}
	for name, steps := range map[string][]step{
		"nothing good yet": {{scripted{"a", nil, broken}, nil, true}},
		"unreadable after good": {
			{scripted{"a", one, nil}, world.CA, false}, {scripted{"a", nil, broken}, world.CA, true},
		},
		"empty after good": {
			{scripted{"a", one, nil}, world.CA, false}, {scripted{"a", nil, nil}, world.CA, true},
		},
		"garbage after good, again and again": {
			{scripted{"a", one, nil}, world.CA, false},
			{scripted{"a", []byte("x"), nil}, world.CA, true}, {scripted{"a", []byte("x"), nil}, world.CA, true},
		},
		"a new bundle replaces the old": {
			{scripted{"a", one, nil}, world.CA, false}, {scripted{"a", two, nil}, world.UnknownCA, false},
			{scripted{"a", nil, broken}, world.UnknownCA, true},
		},
		"it heals": {
			{scripted{"a", one, nil}, world.CA, false}, {scripted{"a", nil, broken}, world.CA, true},
			{scripted{"a", two, nil}, world.UnknownCA, false},
		},
		"never another source's": {
			{scripted{"a", one, nil}, world.CA, false}, {scripted{"b", nil, broken}, nil, true},
		},
		"another good source takes over, and its predecessor's is no last good copy": {
			{scripted{"a", one, nil}, world.CA, false}, {scripted{"b", two, nil}, world.UnknownCA, false},
			{scripted{"a", nil, broken}, nil, true}, {scripted{"b", nil, broken}, world.UnknownCA, true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var store trust.Store
			for i, s := range steps {
				b, err := store.Load(t.Context(), s.source)
				if (err != nil) != s.fails {
					t.Fatalf("step %d: error %v", i, err)
				}
				if s.source.err != nil && !errors.Is(err, s.source.err) {
					t.Errorf("step %d: the cause is lost: %v", i, err)
				}
				if b.Source != s.source.name {
					t.Errorf("step %d: bundle of %q, want of %q", i, b.Source, s.source.name)
				}
				if s.want != nil {
					assertHolds(t, b, nil, s.want)
				} else if !b.Empty() {
					t.Errorf("step %d: a bundle out of nowhere", i)
				}
			}
		})
	}
}

func TestStoreIsSafeForConcurrentUse(t *testing.T) {
	var store trust.Store
	var readers sync.WaitGroup
	for i := range 8 {
		readers.Go(func() {
			source := scripted{name: fmt.Sprint(i % 2), text: world.CA.PEM()}
			for range 20 {
				if b, err := store.Load(t.Context(), source); err != nil || b.Source != source.name {
					t.Errorf("bundle of %q: %v", b.Source, err)
				}
				if b, _ := store.Load(t.Context(), scripted{name: source.name, err: errors.New("no")}); b.Source != source.name {
					t.Errorf("a bundle of %q for %q", b.Source, source.name)
				}
			}
		})
	}
	readers.Wait()
}

func TestConfigMapSource(t *testing.T) {
	object := types.NamespacedName{Namespace: "auditor", Name: "kubelet-ca"}
	meta := metav1.ObjectMeta{Namespace: object.Namespace, Name: object.Name}
	text := string(world.CA.PEM())
	for name, c := range map[string]struct {
		there client.Object
		says  string // of the error; empty: it holds the CA
	}{
		"there":                    {&corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"ca.crt": text}}, ""},
		"in binaryData":            {&corev1.ConfigMap{ObjectMeta: meta, BinaryData: map[string][]byte{"ca.crt": []byte(text)}}, ""},
		"no such key":              {&corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"other": text}}, `no key "ca.crt"`},
		"an empty key":             {&corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"ca.crt": ""}}, "empty"},
		"another namespace's only": {&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "else", Name: object.Name}, Data: map[string]string{"ca.crt": text}}, "not found"},
	} {
		t.Run(name, func(t *testing.T) {
			reader := fake.NewClientBuilder().WithObjects(c.there).Build()
			source := trust.ConfigMap{Reader: reader, Object: object, Key: "ca.crt"}
			b, err := trust.Load(t.Context(), source)
			if b.Source != "configmap kubelet-ca/ca.crt" {
				t.Errorf("source %q", b.Source)
			}
			if c.says == "" {
				assertHolds(t, b, err, world.CA)
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.says) || !b.Empty() {
				t.Errorf("error %v, want %q; %d certificates", err, c.says, len(b.Certificates))
			}
		})
	}
}

func TestConfigMapThatHeals(t *testing.T) {
	object := types.NamespacedName{Namespace: "auditor", Name: "kubelet-ca"}
	api := fake.NewClientBuilder().Build()
	source := trust.ConfigMap{Reader: api, Object: object, Key: "ca.crt"}
	var store trust.Store
	if b, err := store.Load(t.Context(), source); err == nil || !b.Empty() {
		t.Fatalf("no ConfigMap, but %+v %v", b, err)
	}

	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: object.Namespace, Name: object.Name}}
	m.Data = map[string]string{"ca.crt": string(world.CA.PEM())}
	if err := api.Create(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	b, err := store.Load(t.Context(), source)
	assertHolds(t, b, err, world.CA)

	if err := api.Delete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	b, err = store.Load(t.Context(), source)
	if err == nil {
		t.Error("a deleted ConfigMap is no error")
	}
	assertHolds(t, b, nil, world.CA)
}
