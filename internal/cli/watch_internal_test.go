package cli

import "testing"

func TestFit(t *testing.T) {
	for _, c := range []struct {
		text          string
		width, height int
		want          string
	}{
		{"one\ntwo\n", 80, 24, "one\ntwo\n"},
		{"one\ntwo\nthree\n", 80, 5, "one\ntwo\nthree\n"},
		{"one\ntwo\nthree\n", 80, 4, "one\ntwo\nand 1 lines more\n"},
		{"one\ntwo\nthree\n", 80, 0, "one\nand 2 lines more\n"},
		{"a long line\n", 6, 24, "a l...\n"},
		{"a long line\n", 0, 24, "...\n"},
	} {
		if got := fit(c.text, c.width, c.height); got != c.want {
			t.Errorf("fit(%q, %d, %d) = %q, want %q", c.text, c.width, c.height, got, c.want)
		}
	}
}
