package main

import (
	"testing"

	"example.com/{{name}}/toolcell"
)

func TestTool(t *testing.T) {
	for arguments, expected := range map[string]string{
		`{"dividend": 7, "divisor": 2}`:                    "3.5",
		`{"dividend": 7, "divisor": 2, "remainder": true}`: "3 remainder 1",
	} {
		result, err := toolcell.CallTool("{{function}}", arguments)
		if err != nil || result.String() != expected {
			t.Errorf("%s: %v, %v", arguments, result, err)
		}
	}
	if _, err := toolcell.CallTool("{{function}}", `{"dividend": 7, "divisor": 0}`); err == nil {
		t.Error("division by zero is no error")
	}
}
