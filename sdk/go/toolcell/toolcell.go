// Package toolcell makes tools of Toolcell from functions: their argument is a struct, whose tags become the schema.
package toolcell

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

// Call is one call of a tool.
type Call struct {
	// ID is unique in the session.
	ID string
	// Values of the session, by name.
	Values map[string]json.RawMessage
}

// Options are claims about the effects of a tool, which grant nothing, and its display name.
type Options struct {
	Title                                        string
	ReadOnly, Destructive, Idempotent, OpenWorld bool
}

func (o Options) hints() uint32 {
	hints := uint32(0)
	for i, isSet := range []bool{o.ReadOnly, o.Destructive, o.Idempotent, o.OpenWorld} {
		if isSet {
			hints |= 1 << i
		}
	}
	return hints
}

type registered struct {
	name, description, schema string
	options                   Options
	call                      func(arguments []byte, call Call) (any, error)
}

var tools []registered

// Tool registers a tool, in a function `init`. Arguments is a struct with the tags `json`, `description`, and `schema` for
// further members of the JSON Schema; a pointer or `omitempty` makes a parameter optional.
func Tool[Arguments any](name, description string, options Options, run func(Arguments, Call) (any, error)) {
	tools = append(tools, registered{name, description, schemaOf[Arguments](), options,
		func(given []byte, call Call) (any, error) {
			var arguments Arguments
			decoder := json.NewDecoder(bytes.NewReader(given))
			if err := decoder.Decode(&arguments); err != nil {
				return nil, Invalid("%v", err)
			}
			return run(arguments, call)
		}})
}

// Kind of an error: what may help.
type Kind uint32

// Kinds, as in the contract.
const (
	KindInvalid Kind = iota
	KindDenied
	KindUnavailable
	KindFailed
)

// Error of a tool, with a message for the model.
type Error struct {
	Kind    Kind
	Message string
}

func (e *Error) Error() string { return e.Message }

// Invalid says that the arguments make no sense: the model can call again with others.
func Invalid(format string, values ...any) error { return fail(KindInvalid, format, values) }

// Denied says that something is not granted: calling again does not help.
func Denied(format string, values ...any) error { return fail(KindDenied, format, values) }

// Unavailable says that an external system did not answer: the same call may succeed later.
func Unavailable(format string, values ...any) error { return fail(KindUnavailable, format, values) }

// Failed says that the operation failed. Every other error means the same.
func Failed(format string, values ...any) error { return fail(KindFailed, format, values) }

func fail(kind Kind, format string, values []any) error {
	return &Error{kind, fmt.Sprintf(format, values...)}
}

// Part of a result.
type Part struct {
	tag       uint32
	first     string
	second    []byte
	mediaType string
}

// Text is a part.
func Text(text string) Part { return Part{first: text} }

// Blob is a part: bytes with a media type.
func Blob(mediaType string, data []byte) Part { return Part{tag: 1, first: mediaType, second: data} }

// Link is a part: a reference to a resource.
func Link(uri, name string) Part { return Part{tag: 2, first: uri, second: []byte(name)} }

// Result of several parts, and possibly a structured value.
type Result struct {
	Parts      []Part
	Structured any
	structured string
}

// maxMessage is the maximum size of the message of an error, in bytes.
const maxMessage = 4000

// callTool runs a tool. A panic is an error of the tool.
func callTool(name string, arguments []byte, call Call) (result Result, failure *Error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			failure = &Error{KindFailed, fmt.Sprintf("panic: %v", panicked)}
		}
		if failure != nil && len(failure.Message) > maxMessage {
			end := maxMessage
			for !utf8.RuneStart(failure.Message[end]) {
				end--
			}
			failure.Message = failure.Message[:end] + "…"
		}
	}()
	for _, t := range tools {
		if t.name != name {
			continue
		}
		value, err := t.call(arguments, call)
		if err != nil {
			var known *Error
			if errors.As(err, &known) {
				return Result{}, &Error{known.Kind, known.Message}
			}
			return Result{}, &Error{KindFailed, err.Error()}
		}
		return resultOf(value)
	}
	return Result{}, &Error{KindInvalid, fmt.Sprintf("this component has no tool %q", name)}
}

func resultOf(value any) (Result, *Error) {
	var result Result
	switch value := value.(type) {
	case nil:
		return result, nil
	case string:
		return Result{Parts: []Part{Text(value)}}, nil
	case Part:
		return Result{Parts: []Part{value}}, nil
	case Result:
		result = value
	default:
		result.Structured = value
	}
	if result.Structured == nil {
		return result, nil
	}
	text, err := json.Marshal(result.Structured)
	if err != nil {
		return Result{}, &Error{KindFailed, err.Error()}
	}
	if len(result.Parts) == 0 {
		result.Parts = []Part{Text(string(text))}
	}
	if text[0] == '{' {
		result.structured = string(text)
	}
	return result, nil
}

// CallTool calls a tool with JSON as the host does, for tests.
func CallTool(name, arguments string) (Result, error) {
	result, failure := callTool(name, []byte(arguments), Call{})
	if failure != nil {
		return result, failure
	}
	return result, nil
}

// String joins the texts of a result.
func (r Result) String() string {
	text := ""
	for _, part := range r.Parts {
		if part.tag == 0 {
			text += part.first
		}
	}
	return text
}
