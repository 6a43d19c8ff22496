package main

import (
	"fmt"
	"math"

	"example.com/{{name}}/toolcell"
)

type arguments struct {
	Dividend  float64 `json:"dividend" description:"The number to divide."`
	Divisor   float64 `json:"divisor" description:"The number to divide by; not zero."`
	Remainder bool    `json:"remainder,omitempty" description:"Divide whole, and tell the remainder."`
}

func init() {
	toolcell.Tool("{{function}}", "Divides one number by another.",
		toolcell.Options{ReadOnly: true, Idempotent: true}, divide)
}

func divide(given arguments, _ toolcell.Call) (any, error) {
	if given.Divisor == 0 {
		return nil, toolcell.Invalid("`divisor` is zero")
	}
	if !given.Remainder {
		return fmt.Sprint(given.Dividend / given.Divisor), nil
	}
	whole := math.Trunc(given.Dividend / given.Divisor)
	return fmt.Sprintf("%v remainder %v", whole, given.Dividend-whole*given.Divisor), nil
}

func main() {}
