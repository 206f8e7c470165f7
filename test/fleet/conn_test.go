package fleet

import "testing"

func TestWithoutLastRecord(t *testing.T) {
	hello, alert := "\x16\x03\x03\x00\x02ab", "\x15\x03\x03\x00\x02\x02\x50"
	for records, want := range map[string]string{
		hello + alert:         hello,
		hello + hello + alert: hello + hello,
		alert:                 "",
		"":                    "",
	} {
		if got := string(withoutLastRecord([]byte(records))); got != want {
			t.Errorf("of %q stays %q, want %q", records, got, want)
		}
	}
}
